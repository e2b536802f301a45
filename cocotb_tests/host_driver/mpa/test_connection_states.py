"""The life of a connection behind its startup exchange, without sockets, devices or clocks."""

from dataclasses import replace
from itertools import product

import pytest

from open_rnic.host_driver.device import Event
from open_rnic.host_driver.lib.state_machine import Facts, ProtocolError
from open_rnic.host_driver.mpa.connection_states import (
    RECEIVE,
    TRANSMIT,
    Drain,
    End,
    HalfClose,
    Life,
    Receive,
    ReceiveInput,
    ReceiveState,
    Release,
    Transmit,
    TransmitInput,
    TransmitState,
    WriteTerminate,
)
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.negotiation import Negotiated
from open_rnic.host_driver.mpa.rtr import read_response, rtr_ulpdu
from open_rnic.rtl.registers import Cause, EventKind, Model, Role, Rtr

TERMINATE = bytes.fromhex("41470000000000000002000000010000000020050000")
PATIENCE = 3


def agreed(role=Role.INITIATOR, **fields):
    base = Negotiated(
        role,
        Model.CLIENT_SERVER,
        rtr_send=Rtr.NONE,
        rtr_accept=frozenset(),
        markers_tx=False,
        markers_rx=False,
        crc=True,
        rev=1,
        enhanced=False,
        ird=1,
        ord=1,
        peer_ird=None,
        peer_ord=None,
        private_data=b"",
    )
    return replace(base, **fields)


def started(negotiated=None, startup=20):
    """Return a life right after the startup frames."""
    life = Life(PATIENCE)
    life.startup_sent = life.startup_received = life.octets_received = startup
    assert life.sent(bytes(startup)) == []
    assert life.enable(negotiated or agreed()) == []
    return life


def opened(negotiated=None):
    """Return a life whose fence is open."""
    life = started(negotiated)
    assert life.reported(Event(EventKind.FENCE_OPEN)) == []
    return life


def framer(**options):
    return FpduFramer(**{"markers": False, "crc": True} | options)


# The tables

T, TI, R, RI = TransmitState, TransmitInput, ReceiveState, ReceiveInput
ILLEGAL = {
    Transmit: {
        *((T.STARTUP, given) for given in TI if given not in (TI.ENABLE, TI.CLOSE)),
        *((state, TI.ENABLE) for state in T if state is not T.STARTUP),
        *((state, TI.TIMEOUT) for state in T if state not in (T.TERMINATE_DUE, T.TERMINATING)),
    },
    Receive: {
        (R.STARTUP, RI.ERROR),
        (R.STARTUP_CLOSED, RI.ERROR),
        (R.STARTUP_CLOSED, RI.PEER_CLOSED),
        *((state, RI.ENABLE) for state in R if state not in (R.STARTUP, R.STARTUP_CLOSED)),
        *((state, RI.DRAINED) for state in R if state is not R.DRAINING),
        (R.CLOSED, RI.ERROR),
        (R.CLOSED, RI.PEER_CLOSED),
    },
}


@pytest.mark.parametrize(
    ("machine", "table", "states", "inputs"),
    [(Transmit, TRANSMIT, TransmitState, TransmitInput), (Receive, RECEIVE, ReceiveState, ReceiveInput)],
)
def test_every_input_has_a_result_in_every_state_and_the_illegal_ones_are_named(machine, table, states, inputs):
    for state, given in product(states, inputs):
        direction = machine(PATIENCE) if machine is Transmit else machine()
        direction.state = state
        if machine is Transmit:
            direction.may_terminate = True
        if (state, given) in ILLEGAL[machine]:
            with pytest.raises(ProtocolError, match=f"{given.name} is not possible in state {state.name}"):
                direction.take(given)
            assert direction.state is state
        else:
            direction.take(given, Facts(now=1, octets=TERMINATE))
            assert direction.state is table[state, given][1]


# Changes of state, and the actions that they cause; every other legal input changes nothing and causes no action
TRANSMIT_CHANGES = {
    (T.STARTUP, TI.ENABLE): (T.FENCED, []),
    (T.STARTUP, TI.CLOSE): (T.CLOSED, [Release(reset=False)]),
    (T.FENCED, TI.FENCE_OPEN): (T.OPEN, []),
    (T.FENCED, TI.FINISH): (T.FINISHED, [HalfClose()]),
    (T.FENCED, TI.TERMINATE): (T.TERMINATE_DUE, []),
    (T.FENCED, TI.TERMINATE_LEFT): (T.ULP_TERMINATED, []),
    (T.FENCED, TI.NO_FPDU): (T.BARRED, []),
    (T.FENCED, TI.CLOSE): (T.CLOSED, [Release(reset=False)]),
    (T.BARRED, TI.FENCE_OPEN): (T.OPEN, []),
    (T.BARRED, TI.FINISH): (T.FINISHED, [HalfClose()]),
    (T.BARRED, TI.TERMINATE): (T.UNREPORTED, []),
    (T.BARRED, TI.TERMINATE_LEFT): (T.ULP_TERMINATED, []),
    (T.BARRED, TI.CLOSE): (T.CLOSED, [Release(reset=False)]),
    (T.OPEN, TI.FINISH): (T.FINISHED, [HalfClose()]),
    (T.OPEN, TI.TERMINATE): (T.TERMINATING, [WriteTerminate(TERMINATE)]),
    (T.OPEN, TI.TERMINATE_LEFT): (T.ULP_TERMINATED, []),
    (T.OPEN, TI.CLOSE): (T.CLOSED, [Release(reset=False)]),
    (T.ULP_TERMINATED, TI.FINISH): (T.FINISHED, [HalfClose()]),
    (T.ULP_TERMINATED, TI.TERMINATE): (T.TERMINATED, [HalfClose()]),
    (T.ULP_TERMINATED, TI.CLOSE): (T.CLOSED, [Release(reset=False)]),
    (T.FINISHED, TI.TERMINATE): (T.UNREPORTED, []),
    (T.FINISHED, TI.CLOSE): (T.CLOSED, [Release(reset=False)]),
    (T.TERMINATE_DUE, TI.VALID_FPDU): (T.TERMINATING, [WriteTerminate(b"")]),
    (T.TERMINATE_DUE, TI.TERMINATE_LEFT): (T.TERMINATED, [HalfClose()]),
    (T.TERMINATE_DUE, TI.NO_FPDU): (T.UNREPORTED, []),
    (T.TERMINATE_DUE, TI.TIMEOUT): (T.UNREPORTED, []),
    (T.TERMINATE_DUE, TI.CLOSE): (T.CLOSED, [Release(reset=True)]),
    (T.TERMINATING, TI.TERMINATE_LEFT): (T.TERMINATED, [HalfClose()]),
    (T.TERMINATING, TI.TIMEOUT): (T.UNREPORTED, []),
    (T.TERMINATING, TI.CLOSE): (T.CLOSED, [Release(reset=True)]),
    (T.TERMINATED, TI.CLOSE): (T.CLOSED, [Release(reset=False)]),
    (T.UNREPORTED, TI.CLOSE): (T.CLOSED, [Release(reset=True)]),
}
RECEIVE_CHANGES = {
    (R.STARTUP, RI.ENABLE): (R.RECEIVING, []),
    (R.STARTUP, RI.PEER_CLOSED): (R.STARTUP_CLOSED, []),
    (R.STARTUP_CLOSED, RI.ENABLE): (R.DRAINING, [Drain()]),
    (R.RECEIVING, RI.PEER_CLOSED): (R.DRAINING, [Drain()]),
    (R.RECEIVING, RI.ERROR): (R.DRAINING, [Drain()]),
    (R.DRAINING, RI.DRAINED): (R.ENDED, [End("")]),
    **{(state, RI.CLOSE): (R.CLOSED, []) for state in R},
}


@pytest.mark.parametrize("pair", TRANSMIT, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_the_transmit_direction_changes_as_listed(pair):
    direction = Transmit(PATIENCE)
    direction.state = pair[0]
    after, actions = TRANSMIT_CHANGES.get(pair, (pair[0], []))
    assert direction.take(pair[1], Facts(octets=TERMINATE)) == actions
    assert direction.state is after


@pytest.mark.parametrize("pair", RECEIVE, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_the_receive_direction_changes_as_listed(pair):
    direction = Receive()
    direction.state = pair[0]
    after, actions = RECEIVE_CHANGES.get(pair, (pair[0], []))
    assert direction.take(pair[1]) == actions
    assert direction.state is after


# What has left


def test_all_ulpdus_have_left_when_as_many_fpdus_were_sent():
    life, fpdus = opened(), framer()
    assert life.all_left
    life.wrote(2)
    life.sent(fpdus.frame(b"one"))
    assert not life.all_left
    life.sent(fpdus.frame(b"two"))
    assert life.all_left


def test_a_write_that_was_cancelled_counts_for_nothing():
    life = opened()
    life.wrote(5)
    life.wrote(-5)
    assert life.all_left


@pytest.mark.parametrize("kind", [Rtr.SEND, Rtr.WRITE, Rtr.READ])
def test_an_rtr_is_no_ulpdu(kind):
    life, fpdus = started(agreed(model=Model.PEER_TO_PEER, rtr_send=kind)), framer()
    life.wrote(1)
    life.reported(Event(EventKind.RTR_SENT, kind))
    life.reported(Event(EventKind.FENCE_OPEN))
    life.sent(fpdus.frame(rtr_ulpdu(kind)))
    assert not life.all_left
    life.sent(fpdus.frame(b"one"))
    assert life.all_left


def test_the_answer_to_a_read_rtr_must_have_left_too():
    life, fpdus = started(agreed(Role.RESPONDER, model=Model.PEER_TO_PEER)), framer()
    assert not life.all_left  # the RTR could still come
    life.reported(Event(EventKind.RTR_RECEIVED, Rtr.READ))
    life.reported(Event(EventKind.FENCE_OPEN))
    assert not life.all_left
    life.sent(fpdus.frame(read_response(rtr_ulpdu(Rtr.READ))))
    assert life.all_left


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("before", [0, 1, 490, 491, 500])
def test_a_terminate_is_known_when_it_leaves_wherever_markers_lie(markers, before):
    life, fpdus = opened(agreed(markers_tx=markers)), framer(markers=markers)
    for _ in range(3):
        assert life.sent(fpdus.frame(bytes(before))) == []
    assert life.terminate(TERMINATE, 10) == [WriteTerminate(TERMINATE)]
    assert (life.terminating, life.unreported, life.deadline) == (True, True, 10 + PATIENCE)
    assert life.sent(fpdus.frame(TERMINATE)) == [HalfClose()]
    assert (life.terminating, life.unreported, life.deadline) == (False, False, None)
    assert life.close() == [Release(reset=False)]


# Terminates that cannot leave at once


def test_an_unenhanced_responder_may_not_terminate_before_the_first_fpdu():
    """RFC 5044 §7.1.2 rule 4."""
    life = started(agreed(Role.RESPONDER))
    assert life.terminate(TERMINATE, 0) == []
    assert life.terminating
    assert life.fetched() == [WriteTerminate(TERMINATE)]


@pytest.mark.parametrize("negotiated", [agreed(), agreed(Role.RESPONDER, enhanced=True)])
def test_an_initiator_and_an_enhanced_responder_may_terminate_at_once(negotiated):
    assert started(negotiated).terminate(TERMINATE, 0) == [WriteTerminate(TERMINATE)]


def test_a_first_fpdu_before_the_terminate_is_enough():
    life = started(agreed(Role.RESPONDER))
    life.fetched()
    assert life.terminate(TERMINATE, 0) == [WriteTerminate(TERMINATE)]


def test_a_terminate_that_does_not_leave_in_time_makes_the_close_a_reset():
    life = opened()
    life.terminate(TERMINATE, 10)
    assert life.tick(10 + PATIENCE - 0.1) == []
    assert life.terminating
    assert life.tick(10 + PATIENCE) == []
    assert (life.terminating, life.unreported) == (False, True)
    assert life.close() == [Release(reset=True)]


def test_a_peer_that_closes_without_an_fpdu_ends_the_wait_of_a_terminate():
    life = started(agreed(Role.RESPONDER))
    life.terminate(TERMINATE, 0)
    assert life.closed_by_peer() == [Drain()]
    life.drained(good=0, fence_open=False)
    assert (life.terminating, life.unreported) == (False, True)


@pytest.mark.parametrize("enhanced", [False, True])
def test_a_terminate_behind_the_end_of_the_peer_does_not_wait_for_its_fpdu(enhanced):
    life = started(agreed(Role.RESPONDER, enhanced=enhanced))
    life.reported(Event(EventKind.ERROR, Cause.CRC))
    life.drained(good=0, fence_open=False)
    assert life.terminate(TERMINATE, 0) == ([WriteTerminate(TERMINATE)] if enhanced else [])
    assert (life.terminating, life.unreported) == (enhanced, True)


def test_an_error_behind_this_end_s_fin_is_a_reset():
    life = opened()
    assert life.finish() == [HalfClose()]
    assert life.terminate(TERMINATE, 0) == []
    assert life.close() == [Release(reset=True)]


def test_a_connection_is_released_once():
    life = opened()
    assert life.close() == [Release(reset=False)]
    assert life.close() == []


# The end of the receive direction


def test_the_peer_may_close_before_mpa_is_on():
    life = Life(PATIENCE)
    assert life.closed_by_peer() == []
    assert life.peer_closed
    assert life.enable(agreed()) == [Drain()]


def test_an_end_behind_an_fpdu_is_in_order():
    life = opened()
    life.octets_received += 100
    assert life.closed_by_peer() == [Drain()]
    assert life.drained(good=100, fence_open=True) == [End("")]


def test_an_end_inside_an_fpdu_is_reported_with_its_offset():
    life = opened()
    life.octets_received += 103
    life.closed_by_peer()
    assert life.drained(good=100, fence_open=True) == [
        End("the peer closed inside an FPDU, 3 octets after stream offset 100")
    ]


@pytest.mark.parametrize(
    ("model", "written", "lost"),
    [
        (Model.PEER_TO_PEER, 0, "the peer closed before its RTR"),
        (Model.CLIENT_SERVER, 1, "the peer closed before its first FPDU"),
        (Model.CLIENT_SERVER, 0, ""),
    ],
)
def test_a_fence_that_stays_shut_is_an_error_unless_nothing_waits_behind_it(model, written, lost):
    life = started(agreed(Role.RESPONDER, model=model))
    life.wrote(written)
    life.closed_by_peer()
    assert life.drained(good=0, fence_open=False) == [End(lost)]


def test_an_error_of_the_device_ends_the_receive_direction_once():
    life = opened()
    assert life.reported(Event(EventKind.ERROR, Cause.CRC)) == [Drain()]
    assert life.reported(Event(EventKind.ERROR, Cause.TX_LENGTH)) == []
    assert life.closed_by_peer() == []
    assert life.drained(0, fence_open=True) == [End("")]


def test_fpdus_that_the_device_keeps_are_delivered():
    life = opened()
    assert life.delivered(0)
    assert not life.delivered(2)
    life.reported(Event(EventKind.RTR_RECEIVED, Rtr.WRITE))
    life.fetched()
    assert life.delivered(2)
    assert not life.delivered(3)
    life.reported(Event(EventKind.RESPONSE_RECEIVED))
    assert life.delivered(3)
    assert not life.delivered(3, taken=0)


def test_a_permissive_device_delivers_a_first_fpdu_that_is_no_rtr():
    life = opened()
    life.reported(Event(EventKind.RTR_RECEIVED, Rtr.NONE))
    assert not life.delivered(1)
    life.fetched()
    assert life.delivered(1)


def test_counts_wrap_as_the_registers_do():
    life = opened()
    life._fetched = (1 << 32) + 1
    assert life.delivered(1)
    assert not life.delivered(2)


def test_nothing_is_negotiated_before_the_exchange():
    with pytest.raises(RuntimeError, match="nothing is negotiated"):
        _ = Life(PATIENCE).negotiated
