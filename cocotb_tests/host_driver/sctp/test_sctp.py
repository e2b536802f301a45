"""DDP stream sessions over SCTP, without sockets."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver import ddp
from open_rnic.host_driver.lib.state_machine import ProtocolError
from open_rnic.host_driver.mpa.negotiation import Config, Established, Failed, Reason
from open_rnic.host_driver.mpa.startup_frames import Dialect, EnhancedData
from open_rnic.host_driver.sctp.session import (
    _FROM_PEER,
    HELD,
    TABLE,
    ChunkError,
    Control,
    Ended,
    Function,
    Input,
    Ppid,
    Received,
    Session,
    SessionRejected,
    SessionRequested,
    State,
    Transmit,
)
from open_rnic.rtl.registers import Model, Role, Rtr

ACTIVE = Config(Role.INITIATOR, private_data=b"hi", ird=3, ord=7)
PASSIVE = Config(Role.RESPONDER, ird=5, ord=9)
PLAIN = replace(ACTIVE, enhanced=False, model=Model.CLIENT_SERVER)
ASKED = EnhancedData(4, 5, True, frozenset({Rtr.WRITE}))


def chunk(function, ssn=0, private=b""):
    return Control(function, ASKED if function.enhanced else None, private).encode(ssn)


class Peer:
    """Hands the chunks of a peer to a session, in order."""

    def __init__(self, session):
        self.session = session
        self.ssn = 0

    def control(self, function, private=b""):
        self.ssn += 1
        return self.session.receive(Ppid.CONTROL, chunk(function, self.ssn - 1, private))

    def segment(self, octets=b"segment"):
        self.ssn += 1
        return self.session.receive(Ppid.SEGMENT, (self.ssn - 1).to_bytes(2, "big") + octets)


def in_state(state):
    """Return a session that has reached the state through legal inputs, and its peer."""
    active = state in (State.IDLE, State.WAIT_ANSWER, State.FAILED)
    session = Session(ACTIVE if active else PASSIVE)
    peer = Peer(session)
    if state is State.IDLE:
        return session, peer
    session.start(0)
    if state is State.FAILED:
        session.abort("for the test")
    if state in (State.WAIT_ANSWER, State.WAIT_INITIATE, State.FAILED):
        return session, peer
    peer.control(Function.ENHANCED_INITIATE)
    if state is State.REJECTED:
        session.reject()
    elif state is not State.WAIT_ULP:
        session.accept()
    if state not in (State.WAIT_ULP, State.REJECTED, State.ACCEPTED, State.ENDING):
        session.delivered()
    if state in (State.ENDING, State.TERMINATE_SENT, State.ENDED):
        session.terminate()
    if state in (State.TERMINATE_RECEIVED, State.ENDED):
        peer.control(Function.TERMINATE)
    assert session.state is state
    return session, peer


GIVE = {
    Input.ACTIVE: lambda session, _: session.start(0),
    Input.PASSIVE: lambda session, _: session.start(0),
    Input.ACCEPT: lambda session, _: session.accept(b"welcome"),
    Input.REJECT: lambda session, _: session.reject(b"go away"),
    Input.SEND: lambda session, _: session.send(b"octets"),
    Input.TERMINATE: lambda session, _: session.terminate(),
    Input.ABORT: lambda session, _: session.abort("no memory"),
    Input.DELIVERED: lambda session, _: session.delivered(),
    Input.CLOSED: lambda session, _: session.closed("the association was lost"),
    Input.TIMEOUT: lambda session, _: session.tick(10),
    Input.PEER_INITIATE: lambda _, peer: peer.control(Function.ENHANCED_INITIATE),
    Input.PEER_ACCEPT: lambda _, peer: peer.control(Function.ENHANCED_ACCEPT),
    Input.PEER_REJECT: lambda _, peer: peer.control(Function.ENHANCED_REJECT),
    Input.PEER_TERMINATE: lambda _, peer: peer.control(Function.TERMINATE),
    Input.PEER_SEGMENT: lambda _, peer: peer.segment(),
    Input.BAD_CHUNK: lambda session, _: session.receive(5, bytes(4)),
}


# The table


@pytest.mark.parametrize("pair", [pair for pair in product(State, Input) if pair not in TABLE], ids=str)
def test_inputs_that_are_not_in_the_table_are_refused_and_end_the_session_if_from_the_peer(pair):
    state, given = pair
    session, peer = in_state(state)
    if given in _FROM_PEER and not state.final:
        *sent, failed = GIVE[given](session, peer)
        assert (session.state, failed.reason) == (State.FAILED, Reason.BAD_FRAME)
        terminates = [State.WAIT_INITIATE, State.WAIT_ULP, State.OPEN, State.TERMINATE_RECEIVED]
        assert len(sent) == (state in terminates)
        return
    with pytest.raises(ProtocolError, match=f"{given.name} is not possible in state {state.name}"):
        session.take(given)
    assert session.state is state


@pytest.mark.parametrize("pair", TABLE, ids=str)
def test_inputs_in_the_table_lead_to_the_listed_state(pair):
    session, peer = in_state(pair[0])
    if pair == (State.IDLE, Input.PASSIVE):
        session = Session(PASSIVE)
    GIVE[pair[1]](session, peer)
    assert session.state is TABLE[pair][1]
    assert (session.deadline is not None) == (session.state in (State.WAIT_ANSWER, State.WAIT_INITIATE))


@given(st.sampled_from([ACTIVE, PASSIVE]), st.lists(st.sampled_from(Input), min_size=1, max_size=12))
def test_any_sequence_of_inputs_is_handled_or_raises_protocol_error(config, inputs):
    session = Session(config)
    peer = Peer(session)
    for each in inputs:
        before = session.state
        if (before, each) in TABLE:
            if each not in (Input.ACTIVE, Input.PASSIVE) or (each is Input.ACTIVE) == (config is ACTIVE):
                GIVE[each](session, peer)
                assert session.state in (TABLE[before, each][1], State.FAILED)
        elif each in _FROM_PEER and before.final:
            assert GIVE[each](session, peer) == []
        elif each in _FROM_PEER:
            assert isinstance(GIVE[each](session, peer)[-1], Failed)
        else:
            with pytest.raises(ProtocolError):
                session.take(each)
            assert session.state is before


# The codec


def test_chunks_are_laid_out_as_the_documents_draw_them():
    assert Control(Function.INITIATE, None, b"abc").encode(0x0102).hex() == "01020001616263"
    assert Control(Function.TERMINATE).encode(7).hex() == "00070004"
    enhanced = EnhancedData(16, 0x3FFF, True, frozenset({Rtr.READ}))
    assert Control(Function.ENHANCED_ACCEPT, enhanced, b"z").encode(1).hex() == "0001" + "0006" + "8010" + "7fff" + "7a"


@given(
    st.sampled_from(Function),
    st.binary(max_size=508),
    st.integers(0, 65535),
    st.sampled_from(Dialect),
    st.integers(0, 9),
)
def test_every_chunk_survives_a_round_trip(function, private, ssn, dialect, ird):
    enhanced = EnhancedData(ird, 2, True, frozenset({Rtr.WRITE}), dialect=dialect) if function.enhanced else None
    control = Control(function, enhanced, b"" if function is Function.TERMINATE else private)
    assert Control.decode(control.encode(ssn), dialect) == control


@pytest.mark.parametrize(
    ("octets", "what"),
    [
        ("0000", "length 2 at offset 0"),
        ("00000000", "Function Code 0 at offset 2"),
        ("00000008", "Function Code 8 at offset 2"),
        ("0000ffff", "Function Code 65535 at offset 2"),
        ("0000000400", "private data of octets 1 at offset 4: a Terminate has none"),
        ("00000005000000", "private data of octets 3 at offset 4: Enhanced DDP Stream Session Initiate has at least 4"),
        ("00000001" + 513 * "00", "private data of octets 513 at offset 4: at most 512"),
        ("00000006" + 513 * "00", "private data of octets 513 at offset 4: at most 512"),
    ],
)
def test_a_bad_chunk_is_refused_by_field_value_and_place(octets, what):
    with pytest.raises(ChunkError) as refused:
        Control.decode(bytes.fromhex(octets))
    assert what in str(refused.value)


@pytest.mark.parametrize(("enhanced", "most"), [(None, 512), (ASKED, 508)])
def test_private_data_has_at_most_512_octets_in_all(enhanced, most):
    function = Function.ENHANCED_INITIATE if enhanced else Function.INITIATE
    assert len(Control(function, enhanced, bytes(most)).encode(0)) == 516
    with pytest.raises(ValueError, match=f"may have {most} octets, not {most + 1}"):
        Control(function, enhanced, bytes(most + 1))


def test_a_terminate_has_no_private_data_and_enhanced_codes_have_enhanced_data():
    with pytest.raises(ValueError, match="has no private data"):
        Control(Function.TERMINATE, None, b"bye")
    with pytest.raises(ValueError, match="go together"):
        Control(Function.ENHANCED_REJECT)
    with pytest.raises(ValueError, match="go together"):
        Control(Function.REJECT, ASKED)


# Sessions


def deliver(events, to):
    """Hand over the messages to transmit, in reverse order."""
    sent = [event for event in events if isinstance(event, Transmit)]
    return [event for each in reversed(sent) for event in to.receive(each.ppid, each.octets)]


def opened(active=ACTIVE, passive=PASSIVE):
    one, other = Session(active), Session(passive)
    other.start(0)
    [requested] = deliver(one.start(0), other)
    assert isinstance(requested, SessionRequested)
    answer = other.accept(b"welcome")
    [established] = deliver(answer, one)
    assert isinstance(established, Established)
    return one, other, established.negotiated, answer[1].negotiated


@pytest.mark.parametrize("dialect", Dialect)
def test_an_enhanced_session_agrees_as_mpa_does(dialect):
    _, _, ours, theirs = opened(replace(ACTIVE, dialect=dialect), replace(PASSIVE, dialect=dialect))
    assert ours.enhanced
    assert (ours.model, theirs.model) == (Model.PEER_TO_PEER, Model.PEER_TO_PEER)
    assert (ours.private_data, theirs.private_data) == (b"welcome", b"hi")
    assert (ours.ord, theirs.ird) == (7, 7)
    assert theirs.ord == (3 if dialect is Dialect.RFC_6581 else 9)
    assert theirs.ord <= ours.ird
    assert (ours.peer_ird, ours.peer_ord) == (theirs.ird, theirs.ord)


def test_either_end_may_send_first_so_there_is_no_rtr():
    one, other, ours, theirs = opened()
    assert (ours.rtr_send, theirs.rtr_accept) == (Rtr.NONE, frozenset())
    assert deliver(other.send(b"first"), one) == [Received(b"first")]
    assert deliver(one.send(b"too"), other) == [Received(b"too")]


def test_an_unenhanced_session_uses_the_unenhanced_codes():
    one, other = Session(PLAIN), Session(PASSIVE)
    other.start(0)
    [initiate] = one.start(0)
    assert initiate.octets.hex() == "00000001" + b"hi".hex()
    deliver([initiate], other)
    accept, established = other.accept()
    assert accept.octets.hex() == "00000002"
    assert (established.negotiated.ird, established.negotiated.peer_ird) == (5, None)
    [established] = deliver([accept], one)
    assert (established.negotiated.model, established.negotiated.ord) == (Model.CLIENT_SERVER, 7)


@given(st.permutations(range(6)))
def test_segments_are_delivered_in_the_order_of_their_ddp_ssn(order):
    one, other, _, _ = opened()
    sent = [one.send(bytes([n]))[0] for n in range(5)] + one.terminate()
    events = [event for at in order for event in other.receive(sent[at].ppid, sent[at].octets)]
    assert events == [*(Received(bytes([n])) for n in range(5)), Ended()]


def test_ddp_ssns_wrap():
    one, other, _, _ = opened()
    for n in range(66000):
        [received] = deliver(one.send(b""), other)
        assert received == Received(b""), n


def test_each_end_may_terminate_and_the_other_continues():
    one, other, _, _ = opened()
    assert deliver(one.terminate(), other) == [Ended()]
    assert deliver(other.send(b"more"), one) == [Received(b"more")]
    with pytest.raises(ProtocolError):
        one.send(b"no")
    assert deliver(other.terminate(), one) == [Ended()]
    assert one.state is other.state is State.ENDED


def test_a_terminate_waits_until_it_cannot_overtake_the_accept():
    session, _ = in_state(State.ACCEPTED)
    assert session.terminate() == []
    [terminate] = session.delivered()
    assert terminate.octets.hex() == "00010004"
    session, peer = in_state(State.ENDING)
    assert peer.segment(b"early") == [Received(b"early"), Transmit(Ppid.CONTROL, terminate.octets)]


def test_a_rejection_carries_the_required_ord_and_the_private_data():
    one, other = Session(ACTIVE), Session(replace(PASSIVE, min_ord=8))
    other.start(0)
    sent, rejected = other.receive(Ppid.CONTROL, one.start(0)[0].octets)
    assert rejected.what == "the initiator's IRD 3 is under the ORD 8 that this end needs"
    [event] = deliver([sent], one)
    assert (event.control.function, event.control.enhanced.ord) == (Function.ENHANCED_REJECT, 8)
    assert event.may_retry_unenhanced
    session, _ = in_state(State.WAIT_ULP)
    assert session.reject(b"go away")[0].octets[8:] == b"go away"


@pytest.mark.parametrize("function", [Function.REJECT, Function.ENHANCED_REJECT])
def test_both_kinds_of_reject_answer_an_enhanced_initiate(function):
    _, peer = in_state(State.WAIT_ANSWER)
    [event] = peer.control(function, b"no")
    assert isinstance(event, SessionRejected)
    assert (event.control.private_data, event.may_retry_unenhanced) == (b"no", function.enhanced)


def test_a_request_beyond_the_limit_is_answered_by_a_terminate():
    session, _ = in_state(State.WAIT_ULP)
    terminate, failed = session.abort("too many requests wait")
    assert (terminate.octets.hex(), failed.reason) == ("00000004", Reason.LOCAL)
    _, peer = in_state(State.WAIT_ANSWER)
    [refused] = peer.control(Function.TERMINATE)
    assert refused.may_retry_unenhanced
    assert "without asking its ULP" in refused.what


def test_an_end_of_rfc_5043_alone_terminates_an_enhanced_initiate():
    other = Session(replace(PASSIVE, enhanced=False))
    other.start(0)
    terminate, failed = other.receive(Ppid.CONTROL, chunk(Function.ENHANCED_INITIATE))
    assert (terminate.octets.hex(), failed.reason) == ("00000004", Reason.BAD_FRAME)
    other = Session(replace(PASSIVE, enhanced=False))
    other.start(0)
    [requested] = other.receive(Ppid.CONTROL, chunk(Function.INITIATE))
    assert requested.model is Model.CLIENT_SERVER


@pytest.mark.parametrize(
    ("config", "reply", "code"),
    [
        ({"max_ird": 20}, EnhancedData(16, 21, True, frozenset({Rtr.WRITE})), 6),
        ({"rtr": (Rtr.SEND,)}, EnhancedData(16, 1, True, frozenset({Rtr.WRITE})), 7),
    ],
)
def test_an_accept_that_the_initiator_cannot_comply_with_is_answered_by_both_terminates(config, reply, code):
    session = Session(replace(ACTIVE, **config))
    session.start(0)
    rdmap, terminate, failed = session.receive(Ppid.CONTROL, Control(Function.ENHANCED_ACCEPT, reply).encode(0))
    assert (rdmap.ppid, rdmap.octets[:2].hex()) == (Ppid.SEGMENT, "0001")
    assert ddp.Terminate.decode(ddp.decode(rdmap.octets[2:]).payload)[:3] == (2, 0, code)
    assert terminate.octets.hex() == "00020004"
    assert failed.reason.code == code


def test_a_plain_accept_of_an_enhanced_initiate_is_refused_and_may_be_retried():
    _, peer = in_state(State.WAIT_ANSWER)
    terminate, failed = peer.control(Function.ACCEPT)
    assert terminate.octets.hex() == "00010004"
    assert failed.may_retry_unenhanced


def test_a_local_error_of_an_open_session_is_code_5():
    session, _ = in_state(State.OPEN)
    rdmap, terminate, failed = session.abort("no memory")
    assert ddp.Terminate.decode(ddp.decode(rdmap.octets[2:]).payload)[:3] == (2, 0, 5)
    assert (terminate.octets.hex(), failed.reason) == ("00020004", Reason.LOCAL)


@pytest.mark.parametrize(
    ("ppid", "octets", "what"),
    [
        (16, b"", "length 0"),
        (0, bytes.fromhex("0001"), "payload protocol identifier 0: 16 and 17 are DDP's"),
        (17, bytes.fromhex("00010009"), "Function Code 9"),
        (16, bytes.fromhex("0000"), "DDP-SSN 0 at offset 0: 1 is due"),
        (16, bytes.fromhex("8001"), "DDP-SSN 32769 at offset 0: 1 is due"),
    ],
)
def test_a_chunk_out_of_sequence_ends_an_open_session(ppid, octets, what):
    session, _ = in_state(State.OPEN)
    terminate, failed = session.receive(ppid, octets)
    assert (terminate.octets[2:].hex(), session.state) == ("0004", State.FAILED)
    assert what in failed.what


def test_a_repeated_chunk_that_waits_is_refused():
    session, _ = in_state(State.OPEN)
    assert session.receive(16, bytes.fromhex("0003")) == []
    assert "DDP-SSN 3 at offset 0: 1 is due" in session.receive(16, bytes.fromhex("0003"))[-1].what


def test_the_octets_that_wait_for_a_missing_chunk_are_bounded():
    session, _ = in_state(State.OPEN)
    for ssn in range(2, 32768):
        events = session.receive(16, ssn.to_bytes(2, "big") + bytes(1000))
        if events:
            break
    assert events[-1].what == "a chunk with DDP-SSN 1 is missing, and too much waits behind it"
    assert ssn * 1000 < HELD
    assert not session._held


def test_a_segment_over_the_maximum_is_refused_and_takes_no_number():
    session = Session(PASSIVE, max_segment=600)
    session.start(0)
    session.receive(17, chunk(Function.INITIATE))
    session.accept()
    with pytest.raises(ValueError, match="up to 600 octets here, not 601"):
        session.send(bytes(601))
    assert session.send(bytes(600))[0].octets[:2] == b"\0\1"
    with pytest.raises(ValueError, match="at least 516 octets, not 515"):
        Session(PASSIVE, max_segment=515)


@pytest.mark.parametrize(("config", "due"), [(ACTIVE, "answer to the Initiate"), (PASSIVE, "Initiate")])
def test_time_runs_out_only_while_session_control_is_due(config, due):
    session = Session(replace(config, timeout=2.5))
    session.start(100)
    assert session.tick(102.4) == []
    [failed] = session.tick(102.5)
    assert (failed.reason, failed.what) == (Reason.TIMED_OUT, f"no {due} within 2.5 s")
    assert session.tick(1000) == []


chunks = st.tuples(st.sampled_from([16, 17, 17, 17, 0]), st.integers(0, 4), st.integers(0, 9), st.binary(max_size=20))


@given(st.sampled_from([ACTIVE, PASSIVE]), st.lists(chunks, max_size=8))
def test_no_chunks_make_an_exception_escape(config, given):
    session = Session(config)
    session.start(0)
    for ppid, ssn, code, rest in given:
        events = session.receive(ppid, ssn.to_bytes(2, "big") + code.to_bytes(2, "big") + rest)
        if any(isinstance(event, SessionRequested) for event in events) and not session.state.final:
            session.accept()
    assert len(session._held) <= len(given)
