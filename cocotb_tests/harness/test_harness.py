"""The harness, tested on a FIFO of packets with optional faults."""

import random
from types import SimpleNamespace

import pytest

from open_rnic.cocotb_tests.harness import Rate, Sink, Source, bench, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.packet_fifo import NOTE, PacketFifo, packet_fifo


@bench(cycles=20_000)
async def packets_pass(dut):
    source = Source(dut, "i", pauses(parameter("idle")))
    sink = Sink(dut, "o", stalls(parameter("busy")))
    sent = [random.randbytes(size) for size in range(2 * source.octets_per_beat + 2)]
    for index, each in enumerate(sent):
        source.send(each, note=index % 32)
    for index, each in enumerate(sent):
        assert await sink.receive() == (each, {"note": index % 32})
    await source.drained()
    assert sink.empty()


@bench(cycles=1000)
async def rate_is_counted(dut):
    source, rate = Source(dut, "i"), Rate(dut, "o")
    slow = iter([0, 0, 3, 0] + [0] * 100)
    sink = Sink(dut, "o", slow if parameter("slow") else never())
    for size in (1, 40, 0):
        source.send(bytes(size), note=0)
    for _ in range(3):
        await sink.receive()
    assert rate.moved == sum(map(source.beats, (1, 40, 0)))
    assert rate.used == rate.moved + (3 if parameter("slow") else 0)


def noted(lanes, fault=0):
    return packet_fifo(lanes, fault, NOTE)


@pytest.mark.parametrize(("idle", "busy"), [(0, 0), (0.3, 0), (0, 0.3), (0.5, 0.5)])
@pytest.mark.parametrize("lanes", [1, 4])
def test_packets_pass(lanes, idle, busy):
    simulate(noted(lanes), packets_pass, parameters={"idle": idle, "busy": busy})


@pytest.mark.parametrize("slow", [False, True])
def test_rate_is_counted(slow):
    simulate(noted(1), rate_is_counted, parameters={"slow": slow})


def test_a_partial_is_elaborated_only_once(monkeypatch):
    fifo = noted(1)
    simulate(fifo, rate_is_counted, parameters={"slow": False})
    monkeypatch.setattr(PacketFifo, "elaborate", None)
    simulate(fifo, rate_is_counted, parameters={"slow": False})


def test_a_lost_beat_is_a_failure():
    with pytest.raises(AssertionError, match="changed or withdrawn"):
        simulate(noted(1, fault=1), packets_pass, parameters={"idle": 0.5, "busy": 0.5}, seed=1)


def test_a_hang_is_a_failure():
    with pytest.raises(AssertionError, match="not finished after 20000 cycles"):
        simulate(noted(1, fault=2), packets_pass, parameters={"idle": 0, "busy": 0})


def test_a_valid_that_waits_for_ready_is_a_failure():
    with pytest.raises(AssertionError, match="not finished after 20000 cycles"):
        simulate(noted(1, fault=3), packets_pass, parameters={"idle": 0, "busy": 0.3}, seed=1)


def test_a_bench_that_the_simulation_does_not_find_is_a_failure():
    @bench()
    async def absent(dut):
        """Is no variable of the module."""

    with pytest.raises(AssertionError, match=r"\nthe bench .*absent did not run\nseed"):
        simulate(noted(1), rate_is_counted, absent, parameters={"slow": False})


def test_benches_of_several_modules_are_rejected():
    with pytest.raises(ValueError, match=r"benches of one module .* not of \['a', 'b'\]"):
        simulate(None, SimpleNamespace(module="a"), SimpleNamespace(module="b"))
    with pytest.raises(ValueError, match="not of none"):
        simulate(None, "json")
