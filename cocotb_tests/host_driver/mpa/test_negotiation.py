"""The startup exchange, without sockets."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver.lib.state_machine import ProtocolError
from open_rnic.host_driver.mpa.negotiation import (
    TABLE,
    Config,
    Established,
    Failed,
    Input,
    Negotiation,
    Reason,
    Rejected,
    Requested,
    Send,
    State,
)
from open_rnic.host_driver.mpa.startup_frames import Dialect, EnhancedData, FrameKind, StartupFrame
from open_rnic.rtl.registers import Model, Role, Rtr

INITIATOR = Config(Role.INITIATOR)
RESPONDER = Config(Role.RESPONDER)
KINDS = (Rtr.SEND, Rtr.WRITE, Rtr.READ)


def feed(end, octets, chunk=1):
    """Hand over a stream in pieces of at most ``wanted`` octets; returns the events and the remaining octets."""
    events = []
    while end.wanted and octets:
        piece = octets[: min(chunk, end.wanted)]
        events += end.receive(piece)
        octets = octets[len(piece) :]
    return events, octets


def requested(config=RESPONDER, **fields):
    """Return a responder that has received a Request with these fields, and its last event."""
    end = Negotiation(config)
    end.start(0)
    fields = {"enhanced": EnhancedData(4, 5, True, frozenset(KINDS))} | fields
    events, _ = feed(end, StartupFrame(FrameKind.REQUEST, **fields).encode(), 600)
    return end, events[-1]


def replied(config=INITIATOR, **fields):
    """Return the last event of an initiator that has received a Reply with these fields."""
    end = Negotiation(config)
    end.start(0)
    fields = {"enhanced": EnhancedData(16, 16, True, frozenset({Rtr.WRITE}))} | fields
    events, _ = feed(end, StartupFrame(FrameKind.REPLY, **fields).encode(), 600)
    return events[-1]


def exchange(initiator, responder, chunk, behind=b""):
    """Return the outcomes of both ends, with frames in pieces of ``chunk`` octets and FPDUs right behind them."""
    one, other = Negotiation(initiator), Negotiation(responder)
    other.start(0)
    [request] = one.start(0)
    [asked], left = feed(other, request.octets + behind, chunk)
    assert isinstance(asked, Requested)
    assert left == behind
    reply, theirs = other.accept(b"welcome")
    [ours], left = feed(one, reply.octets + behind, chunk)
    assert left == behind
    return ours.negotiated, theirs.negotiated


# The table

LOCAL = {Input.INITIATE, Input.LISTEN, Input.ACCEPT, Input.REJECT, Input.ABORT}


def in_state(state):
    """Return a negotiation that has reached the state through legal inputs."""
    match state:
        case State.IDLE:
            return Negotiation(INITIATOR)
        case State.WAIT_REPLY:
            end = Negotiation(INITIATOR)
            end.start(0)
        case State.WAIT_REQUEST:
            end = Negotiation(RESPONDER)
            end.start(0)
        case State.FAILED:
            end = Negotiation(INITIATOR)
            end.abort("for the test")
        case _:
            end, _ = requested()
            if state is State.ESTABLISHED:
                end.accept()
            elif state is State.REJECTED:
                end.reject()
    assert end.state is state
    return end


@pytest.mark.parametrize("pair", [pair for pair in product(State, Input) if pair not in TABLE], ids=str)
def test_inputs_that_are_not_in_the_table_are_refused_and_change_nothing(pair):
    end = in_state(pair[0])
    with pytest.raises(ProtocolError, match=f"{pair[1].name} is not possible in state {pair[0].name}"):
        end.take(pair[1])
    assert end.state is pair[0]


REPLY = StartupFrame(FrameKind.REPLY, enhanced=EnhancedData(1, 1, True, frozenset({Rtr.READ}))).encode()
GIVE = {
    Input.INITIATE: lambda end: end.start(0),
    Input.LISTEN: lambda end: end.start(0),
    Input.ACCEPT: lambda end: end.accept(),
    Input.REJECT: lambda end: end.reject(),
    Input.ABORT: lambda end: end.abort("no memory"),
    Input.REQUEST: lambda end: feed(end, REPLY.replace(b"Rep", b"Req"))[0],
    Input.ACCEPTING_REPLY: lambda end: feed(end, REPLY)[0],
    Input.REJECTING_REPLY: lambda end: feed(end, REPLY[:16] + b"\x70" + REPLY[17:])[0],
    Input.BAD_FRAME: lambda end: end.receive(b"x"),
    Input.CLOSED: lambda end: end.connection_lost("the peer closed"),
    Input.TIMEOUT: lambda end: end.tick(10),
}
OUTCOME = {State.ESTABLISHED: Established, State.REJECTED: Rejected, State.FAILED: Failed, State.WAIT_ULP: Requested}


@pytest.mark.parametrize("pair", TABLE, ids=str)
def test_inputs_in_the_table_lead_to_the_listed_state(pair):
    end = in_state(pair[0])
    if pair == (State.IDLE, Input.LISTEN):
        end = Negotiation(RESPONDER)
    events = GIVE[pair[1]](end)
    after = TABLE[pair][1]
    assert end.state is after
    if after in OUTCOME:
        assert isinstance(events[-1], OUTCOME[after])
        assert end.deadline is None
        assert end.wanted == 0


@given(st.sampled_from([INITIATOR, RESPONDER]), st.lists(st.sampled_from(Input), min_size=1, max_size=8))
def test_any_sequence_of_inputs_is_handled_or_raises_protocol_error(config, inputs):
    end = Negotiation(config)
    for each in inputs:
        before = end.state
        if (before, each) not in TABLE:
            with pytest.raises(ProtocolError):
                end.take(each)
            assert end.state is before
        elif each not in (Input.INITIATE, Input.LISTEN) or (each is Input.INITIATE) == (config is INITIATOR):
            events = GIVE[each](end)
            assert end.state in (TABLE[before, each][1], State.FAILED)
            assert len(events) == (0 if each is Input.LISTEN else 1 + (each in (Input.ACCEPT, Input.REJECT)))


# Whole exchanges


@pytest.mark.parametrize("chunk", [1, 7, 600])
@pytest.mark.parametrize("model", Model)
@pytest.mark.parametrize("kind", KINDS)
def test_both_ends_agree(model, kind, chunk):
    for crc, crc2, markers, markers2 in product((False, True), repeat=4):
        ours, theirs = exchange(
            replace(INITIATOR, model=model, rtr=(kind,), crc=crc, markers=markers, ird=3, ord=7, private_data=b"hi"),
            replace(RESPONDER, crc=crc2, markers=markers2, ird=5, ord=9),
            chunk,
            behind=b"\0\x0e\xc1\x40",
        )
        expected = kind if model is Model.PEER_TO_PEER else Rtr.NONE
        assert (ours.model, theirs.model) == (model, model)
        assert (ours.rtr_send, theirs.rtr_send) == (expected, Rtr.NONE)
        assert (ours.rtr_accept, theirs.rtr_accept) == (frozenset(), frozenset({expected} - {Rtr.NONE}))
        assert ours.crc == theirs.crc == (crc or crc2)
        assert (ours.markers_rx, ours.markers_tx) == (theirs.markers_tx, theirs.markers_rx) == (markers, markers2)
        assert (ours.ird, ours.ord, theirs.ird, theirs.ord) == (3, 7, 7, 3)
        assert (ours.peer_ird, ours.peer_ord, theirs.peer_ird, theirs.peer_ord) == (7, 3, 3, 7)
        assert (ours.private_data, theirs.private_data) == (b"welcome", b"hi")


def test_an_unenhanced_request_has_an_unenhanced_reply():
    client = replace(INITIATOR, enhanced=False, model=Model.CLIENT_SERVER, ird=2, ord=3)
    ours, theirs = exchange(client, RESPONDER, 1)
    assert not ours.enhanced
    assert (ours.rev, theirs.rev) == (1, 1)
    assert (ours.ird, ours.ord, ours.peer_ird, ours.peer_ord) == (2, 3, None, None)


depths = st.integers(0, 20)


@given(depths, depths, depths, depths, st.tuples(*[st.booleans()] * 4))
def test_depths_never_overrun_the_peer(ird, ord_, ird2, ord2, negotiate):
    ours, theirs = exchange(
        replace(INITIATOR, ird=ird, ord=ord_, max_ird=20, negotiate_ird=negotiate[0], negotiate_ord=negotiate[1]),
        replace(RESPONDER, ird=ird2, ord=ord2, max_ird=20, negotiate_ird=negotiate[2], negotiate_ord=negotiate[3]),
        600,
    )
    if negotiate[1] and negotiate[2]:
        assert ord_ == ours.ord <= theirs.ird
    else:
        assert (ours.ord, theirs.ird) == (ord_, ird2)
        assert ours.peer_ird == 0x3FFF
    if negotiate[0] and negotiate[3]:
        assert theirs.ord == min(ord2, ird)
        assert theirs.ord <= ours.ird
    else:
        assert (theirs.ord, ours.ird) == (ord2, ird)
        assert ours.peer_ord == 0x3FFF


# The responder


def test_the_reply_names_one_rtr_that_was_offered_in_the_responders_order():
    for offered in [{Rtr.SEND}, {Rtr.READ, Rtr.SEND}, set(KINDS)]:
        end, _ = requested(enhanced=EnhancedData(4, 5, True, frozenset(offered)))
        sent = end.accept()[0].frame.enhanced
        assert sent.rtr == {next(kind for kind in RESPONDER.rtr if kind in offered)}


def test_the_reply_names_an_rtr_that_the_responder_has_when_none_was_offered():
    end, _ = requested(replace(RESPONDER, rtr=(Rtr.SEND,)), enhanced=EnhancedData(4, 5, True, frozenset({Rtr.READ})))
    assert end.accept()[0].frame.enhanced.rtr == {Rtr.SEND}


def test_rtr_bits_without_a_are_ignored():
    end, event = requested(enhanced=EnhancedData(4, 5, False, frozenset(KINDS)))
    assert event.model is Model.CLIENT_SERVER
    assert end.accept()[0].frame.enhanced.rtr == frozenset()


def test_a_read_rtr_raises_the_responders_ird_to_1():
    asked = EnhancedData(ird=0, ord=0, peer_to_peer=True, rtr=frozenset({Rtr.READ}))
    end, _ = requested(replace(RESPONDER, ird=0), enhanced=asked)
    sent, established = end.accept()
    assert sent.frame.enhanced.ird == established.negotiated.ird == 1


def test_a_read_rtr_is_not_named_when_there_is_no_ird_for_it():
    end, _ = requested(replace(RESPONDER, ird=0, max_ird=0), enhanced=EnhancedData(0, 0, True, frozenset({Rtr.READ})))
    assert end.accept()[0].frame.enhanced.rtr == {Rtr.WRITE}


def test_an_ird_over_the_devices_is_not_promised():
    end, _ = requested(replace(RESPONDER, max_ird=32), enhanced=EnhancedData(4, 100, True, frozenset(KINDS)))
    assert end.accept()[0].frame.enhanced.ird == 32


def test_too_small_an_initiator_ird_is_rejected_with_the_required_ord():
    end, event = requested(replace(RESPONDER, min_ord=8))
    assert end.state is State.REJECTED
    assert (event.frame.rejected, event.frame.enhanced.ord) == (True, 8)
    assert event.what == "the initiator's IRD 4 is under the ORD 8 that this end needs"


def test_a_rejection_reaches_the_initiator_with_private_data_and_depths():
    end, _ = requested(replace(RESPONDER, ird=4, max_ird=4, ord=2))
    sent, rejected = end.reject(b"go away")
    assert isinstance(rejected, Rejected)
    one = Negotiation(INITIATOR)
    one.start(0)
    [event], left = feed(one, sent.octets + b"more")
    assert isinstance(event, Rejected)
    assert (event.frame.private_data, left) == (b"go away", b"more")
    assert (event.frame.enhanced.ird, event.frame.enhanced.ord) == (4, 2)


def test_a_rejection_for_ird_names_the_required_ird():
    event = replied(rejected=True, enhanced=EnhancedData(1, 40))
    assert "its ORD is 40, this end's IRD 16" in event.what


@pytest.mark.parametrize("answer", ["accept", "reject"])
def test_too_much_private_data_is_refused_before_anything_is_sent(answer):
    end, _ = requested()
    with pytest.raises(ValueError, match="may have 508 octets, not 509"):
        getattr(end, answer)(bytes(509))
    assert isinstance(getattr(end, answer)(bytes(508))[0], Send)


# The initiator


@pytest.mark.parametrize(
    ("fields", "wire"),
    [
        ({"rtr": (Rtr.READ, Rtr.WRITE)}, "50020004 8010 c010"),
        ({"rtr": (Rtr.SEND,)}, "50020004 c010 0010"),
        ({"model": Model.CLIENT_SERVER}, "50020004 0010 0010"),
        ({"negotiate_ird": False, "crc": False, "markers": True, "rtr": (Rtr.WRITE,)}, "90020004 bfff 8010"),
        ({"negotiate_ord": False, "rtr": (Rtr.READ,), "private_data": b"z"}, "50020005 8010 7fff 7a"),
        ({"model": Model.CLIENT_SERVER, "enhanced": False}, "40010000"),
    ],
)
def test_a_request_has_every_flag_where_the_documents_draw_it(fields, wire):
    [sent] = Negotiation(replace(INITIATOR, **fields)).start(0)
    assert sent.octets == b"MPA ID Req Frame" + bytes.fromhex(wire)


@pytest.mark.parametrize(
    ("asked", "wire"),
    [
        (EnhancedData(4, 5, True, frozenset({Rtr.READ})), "50020004 8010 4004"),
        (EnhancedData(0x3FFF, 0x3FFF, True, frozenset({Rtr.SEND})), "50020004 ffff 3fff"),
        (EnhancedData(4, 5, False, frozenset(KINDS)), "50020004 0010 0004"),
        (None, "40020000"),
    ],
)
def test_a_reply_has_every_flag_where_the_documents_draw_it(asked, wire):
    end, _ = requested(enhanced=asked)
    assert end.accept()[0].octets == b"MPA ID Rep Frame" + bytes.fromhex(wire)


def test_the_initiator_sends_the_rtr_that_it_prefers_of_several():
    many = EnhancedData(16, 16, True, frozenset(KINDS))
    assert replied(replace(INITIATOR, rtr=(Rtr.READ, Rtr.WRITE)), enhanced=many).negotiated.rtr_send is Rtr.READ
    no_reads = replace(many, ird=0)
    assert replied(replace(INITIATOR, rtr=(Rtr.READ, Rtr.WRITE)), enhanced=no_reads).negotiated.rtr_send is Rtr.WRITE


@pytest.mark.parametrize(
    ("config", "enhanced", "reason", "what"),
    [
        ({"rtr": (Rtr.SEND,)}, {"rtr": frozenset({Rtr.WRITE})}, Reason.NO_MATCHING_RTR, "takes Write as RTR"),
        ({}, {"rtr": frozenset()}, Reason.NO_MATCHING_RTR, "takes nothing as RTR"),
        ({}, {"peer_to_peer": False}, Reason.NO_MATCHING_RTR, "A=0 to a Request with A=1"),
        ({"model": Model.CLIENT_SERVER}, {}, Reason.NO_MATCHING_RTR, "A=1 to a Request with A=0"),
        ({"max_ird": 20}, {"ord": 21}, Reason.INSUFFICIENT_IRD, "ORD 21 is over this end's largest IRD, 20"),
    ],
)
def test_a_reply_that_the_initiator_cannot_comply_with_is_answered_with_a_terminate(config, enhanced, reason, what):
    reply = replace(EnhancedData(16, 16, True, frozenset({Rtr.WRITE})), **enhanced)
    event = replied(replace(INITIATOR, **config), enhanced=reply, markers=True)
    assert (event.reason, event.reason.code) == (reason, {Reason.INSUFFICIENT_IRD: 6}.get(reason, 7))
    assert what in event.what
    assert (event.terminate.model, event.terminate.rtr_send) == (Model.CLIENT_SERVER, Rtr.NONE)
    assert event.terminate.markers_tx


def test_the_initiator_raises_its_ird_to_the_responders_ord():
    assert replied(enhanced=EnhancedData(16, 40, True, frozenset({Rtr.WRITE}))).negotiated.ird == 40


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"rev": 0}, "Rev 0 at stream offset 17"),
        ({"rev": 3}, "Rev 3 at stream offset 17"),
        ({"rev": 255}, "Rev 255 at stream offset 17"),
        ({"rev": 1}, "S=1 and Rev 1 at stream offset 16"),
    ],
)
def test_an_unsupported_rev_is_error_4(fields, what):
    for event in (requested(**fields)[1], replied(**fields)):
        assert (event.reason, event.reason.code, event.terminate) == (Reason.BAD_FRAME, 4, None)
        assert what in event.what


PLAIN = replace(INITIATOR, enhanced=False, model=Model.CLIENT_SERVER)


@pytest.mark.parametrize(
    ("config", "fields", "retry"),
    [
        (INITIATOR, {"enhanced": None, "rev": 1}, True),
        (INITIATOR, {"rev": 1}, True),  # a responder of RFC 5044 that echoes reserved bits
        (INITIATOR, {"enhanced": None}, True),
        (INITIATOR, {"rev": 0}, False),
        (INITIATOR, {"rev": 3}, False),
        (PLAIN, {}, False),
        (PLAIN, {"rev": 1}, False),
    ],
)
def test_an_unenhanced_reply_to_an_enhanced_request_is_error_4_and_may_be_retried(config, fields, retry):
    event = replied(config, **fields)
    assert (event.reason, event.may_retry_unenhanced) == (Reason.BAD_FRAME, retry)


def test_a_rejection_by_a_responder_that_is_not_enhanced_may_be_retried():
    assert replied(rejected=True, enhanced=None, rev=1).may_retry_unenhanced
    assert not replied(rejected=True).may_retry_unenhanced
    assert not replied(PLAIN, rejected=True, enhanced=None, rev=1).may_retry_unenhanced


# The three cases of RFC 6581 §10


def test_enhanced_initiator_and_responder_have_enhanced_frames_both_ways():
    ours, theirs = exchange(INITIATOR, RESPONDER, 600)
    assert (ours.enhanced, theirs.enhanced, ours.rev, theirs.rev) == (True, True, 2, 2)


@pytest.mark.parametrize("rev", [1, 2])
def test_an_enhanced_responder_answers_an_unenhanced_request_with_an_unenhanced_reply(rev):
    end, _ = requested(enhanced=None, rev=rev)
    sent = end.accept(bytes(512))[0].frame
    assert (sent.enhanced, sent.rev, sent.pd_length) == (None, rev, 512)
    end, _ = requested(enhanced=None, rev=rev)
    assert end.reject(bytes(512))[0].frame.enhanced is None


@pytest.mark.parametrize("fields", [{}, {"enhanced": None}, {"rev": 1}])
def test_a_responder_of_rfc_5044_alone_closes_on_an_enhanced_request(fields):
    end, event = requested(replace(RESPONDER, enhanced=False), **fields)
    assert (event.reason, event.terminate, end.wanted) == (Reason.BAD_FRAME, None, 0)
    end, event = requested(replace(RESPONDER, enhanced=False), enhanced=None, rev=1)
    assert isinstance(event, Requested)


# Local errors (RFC 6581 §9.3)


@pytest.mark.parametrize("state", [state for state in State if (state, Input.ABORT) in TABLE])
def test_a_local_error_is_reported_in_a_terminate_as_soon_as_an_fpdu_can_carry_it(state):
    [event] = in_state(state).abort("no memory")
    assert (event.reason, event.reason.code, event.what) == (Reason.LOCAL, 5, "no memory")
    assert bool(event.terminate) == (state is State.ESTABLISHED)


def test_a_terminate_for_a_local_error_needs_no_rtr_at_either_end():
    one, other = Negotiation(replace(INITIATOR, markers=True)), Negotiation(RESPONDER)
    other.start(0)
    feed(other, one.start(0)[0].octets, 600)
    feed(one, other.accept()[0].octets, 600)
    for end in (one, other):
        first = end.abort("no memory")[0].terminate
        assert (first.model, first.rtr_send, first.rtr_accept) == (Model.CLIENT_SERVER, Rtr.NONE, frozenset())
        assert first.markers_tx == (end is other)


# The responder's ULP changes the configuration


def test_the_ulp_may_decide_the_depths_when_it_has_seen_the_request():
    end, _ = requested()
    sent, established = end.accept(config=replace(RESPONDER, ird=9, ord=2))
    assert (sent.frame.enhanced.ird, sent.frame.enhanced.ord) == (9, 2)
    assert (established.negotiated.ird, established.negotiated.ord) == (9, 2)
    end, _ = requested()
    assert end.reject(config=replace(RESPONDER, min_ord=12))[0].frame.enhanced.ord == 12
    end, _ = requested()
    with pytest.raises(ValueError, match="cannot change"):
        end.accept(config=INITIATOR)
    with pytest.raises(ValueError, match="only a Config with enhanced can answer it"):
        end.accept(config=replace(RESPONDER, enhanced=False))


def test_the_ulps_configuration_may_reject_the_request_that_it_has_seen():
    end, _ = requested()
    sent, rejected = end.accept(b"welcome", replace(RESPONDER, min_ord=8, private_data=b"more"))
    assert (end.state, sent.frame.rejected, sent.frame.enhanced.ord) == (State.REJECTED, True, 8)
    assert sent.frame.private_data == b"more"
    assert rejected.what == "the initiator's IRD 4 is under the ORD 8 that this end needs"


# 0x3FFF


@pytest.mark.parametrize("field", ["ird", "ord"])
def test_all_ones_in_one_field_leaves_the_other_negotiated(field):
    asked = replace(EnhancedData(4, 50, True, frozenset(KINDS)), **{field: 0x3FFF})
    end, _ = requested(enhanced=asked)
    sent, established = end.accept()
    answered = sent.frame.enhanced
    if field == "ird":
        assert (answered.ord, established.negotiated.ord) == (0x3FFF, 16)
        assert (answered.ird, established.negotiated.ird) == (50, 50)
    else:
        assert (answered.ird, established.negotiated.ird) == (0x3FFF, 16)
        assert (answered.ord, established.negotiated.ord) == (4, 4)


def test_a_value_in_answer_to_all_ones_is_for_the_ulp_alone():
    """Linux siw answers so: it treats 0x3FFF as a number."""
    config = replace(INITIATOR, negotiate_ird=False, negotiate_ord=False)
    agreed = replied(config, enhanced=EnhancedData(3, 128, True, frozenset({Rtr.WRITE}))).negotiated
    assert (agreed.ird, agreed.ord, agreed.peer_ird, agreed.peer_ord) == (16, 16, 3, 128)


# The behaviour of peers in the field


@pytest.mark.parametrize(
    ("offered", "answered"),
    [
        ({Rtr.WRITE, Rtr.READ}, Rtr.WRITE),  # siw, irdma
        ({Rtr.READ}, Rtr.READ),  # cxgb4
        ({Rtr.WRITE}, Rtr.WRITE),
        (set(KINDS), Rtr.WRITE),  # qed
    ],
)
def test_initiators_in_the_field_get_one_kind_that_they_offered(offered, answered):
    end, _ = requested(enhanced=EnhancedData(0, 0, True, frozenset(offered)))
    reply = end.accept()[0].frame.enhanced
    assert reply.rtr == {answered}
    assert reply.ird >= 1  # irdma takes no Read RTR with less


def test_a_kind_that_was_not_offered_is_sent_when_it_can_be():
    """Linux siw answers a Request that offers only the Send with the Write."""
    reply = EnhancedData(1, 1, True, frozenset({Rtr.WRITE}))
    assert replied(enhanced=reply).negotiated.rtr_send is Rtr.WRITE
    assert replied(replace(INITIATOR, rtr=(Rtr.SEND,)), enhanced=reply).reason is Reason.NO_MATCHING_RTR


# The dialect of the drafts

DRAFT = {"dialect": Dialect.DRAFT_02}


@pytest.mark.parametrize("kind", KINDS)
def test_the_drafts_dialect_negotiates_between_its_own(kind):
    client = replace(INITIATOR, rtr=(kind,), ird=3, ord=7, **DRAFT)
    ours, theirs = exchange(client, replace(RESPONDER, ird=5, ord=2, **DRAFT), 1)
    assert (ours.model, ours.rtr_send, theirs.rtr_accept) == (Model.PEER_TO_PEER, kind, {kind})
    assert (ours.ird, ours.ord, theirs.ird, theirs.ord) == (3, 7, 7, 2)


def test_a_request_of_the_drafts_asks_for_the_responders_ird():
    [sent] = Negotiation(replace(INITIATOR, ird=3, ord=7, **DRAFT)).start(0)
    assert sent.octets[20:] == bytes.fromhex("c0078007")
    end, _ = requested(replace(RESPONDER, **DRAFT), enhanced=EnhancedData(30, 0, True, frozenset({Rtr.READ}), **DRAFT))
    reply, established = end.accept()
    assert reply.octets[20:] == bytes.fromhex("001e8010")
    assert (established.negotiated.ird, established.negotiated.ord) == (30, 16)


def test_a_responder_of_the_drafts_names_every_offered_kind_that_it_takes():
    offered = frozenset({Rtr.WRITE, Rtr.READ})
    end, _ = requested(replace(RESPONDER, **DRAFT), enhanced=EnhancedData(1, 1, True, offered, **DRAFT))
    sent, established = end.accept()
    assert sent.frame.enhanced.rtr == established.negotiated.rtr_accept == offered


def test_without_a_common_kind_the_drafts_let_the_initiators_ulp_send_first():
    ours, theirs = exchange(
        replace(INITIATOR, rtr=(Rtr.READ,), **DRAFT), replace(RESPONDER, rtr=(Rtr.SEND,), **DRAFT), 1
    )
    assert (ours.model, ours.rtr_send) == (theirs.model, Rtr.NONE) == (Model.CLIENT_SERVER, Rtr.NONE)
    assert theirs.rtr_accept == frozenset()


def test_a_rev_2_reply_without_enhanced_data_takes_every_kind_in_the_drafts():
    agreed = replied(replace(INITIATOR, rtr=(Rtr.READ,), **DRAFT), enhanced=None).negotiated
    assert (agreed.rtr_send, agreed.ird, agreed.ord, agreed.peer_ird) == (Rtr.READ, 16, 16, None)


def test_all_ones_in_the_drafts_is_answered_per_field():
    client = replace(INITIATOR, ord=7, negotiate_ord=False, **DRAFT)
    ours, theirs = exchange(client, replace(RESPONDER, ird=5, **DRAFT), 1)
    assert (ours.ord, theirs.ird, ours.peer_ird, ours.peer_ord) == (7, 5, 0x3FFF, 0x3FFF)


@pytest.mark.parametrize("taken", range(24))
def test_a_close_inside_a_frame_is_reported_with_its_offset(taken):
    for config, octets in ((INITIATOR, REPLY), (RESPONDER, REPLY.replace(b"Rep", b"Req"))):
        end = Negotiation(config)
        end.start(0)
        feed(end, octets[:taken])
        [event] = end.connection_lost("the peer closed")
        assert (f"stream offset {taken}" in event.what) == bool(taken)
        assert event.may_retry_unenhanced == (config is INITIATOR and not taken)


def test_time_runs_out_only_while_the_peers_frame_is_due():
    end = Negotiation(replace(RESPONDER, timeout=2.5))
    end.start(100)
    end.receive(b"MPA ID")
    assert end.tick(102.4) == []
    [event] = end.tick(102.5)
    assert event.what == "no whole MPA Request within 2.5 s, 6 octets of it came"
    end, _ = requested()
    assert end.tick(1e9) == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"ird": -1}, "ird is 0 to 16382, not -1"),
        ({"ord": 0x3FFF}, "ord is 0 to 16382, not 16383"),
        ({"ird": 9, "max_ird": 8}, "ird 9 is over the device's 8"),
        ({"ord": 9, "max_ord": 8}, "ord 9 is over the device's 8"),
        ({"min_ord": 17}, "min_ord 17 is over ord 16"),
        ({"rtr": ()}, "at least one RTR"),
        ({"rtr": (Rtr.READ,), "ird": 0, "max_ird": 0}, "the IRD is 0"),
        ({"enhanced": False}, "needs enhanced frames"),
        ({"model": Model.CLIENT_SERVER, "negotiate_ird": False, "negotiate_ord": False}, "must negotiate something"),
        ({"timeout": 0}, "timeout is a finite number of seconds, more than 0, not 0"),
        ({"timeout": float("nan")}, "more than 0, not nan"),
        ({"private_data": bytes(509)}, "may have 508 octets, not 509"),
    ],
)
def test_a_contradictory_configuration_is_refused(fields, what):
    with pytest.raises(ValueError, match=what):
        replace(INITIATOR, **fields)


@given(st.sampled_from([INITIATOR, RESPONDER]), st.binary(max_size=600), st.integers(0, 20), st.integers(1, 600))
def test_no_stream_of_octets_makes_an_exception_escape(config, octets, keyed, chunk):
    key = (FrameKind.REPLY if config is INITIATOR else FrameKind.REQUEST).value
    end = Negotiation(config)
    end.start(0)
    events, _ = feed(end, key[:keyed] + octets, chunk)
    assert all(isinstance(event, Established | Rejected | Requested | Failed | Send) for event in events)
