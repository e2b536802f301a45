"""The base of all tests of the RTL: it runs simulations from pytest, and provides stream drivers inside simulations.

A test file holds both sides. pytest runs the functions called ``test_…``, which call :func:`simulate`. The simulation
imports the same file, and runs the benches that :func:`simulate` is given: functions that are marked with
:func:`bench`. A bench that no test runs is an error when pytest collects the tests (:mod:`.collected`)::

    @bench(cycles=1000)
    async def passes_packets(dut):
        source, sink = Source(dut, "i"), Sink(dut, "o", stalls(0.5))
        source.send(b"octets")
        assert (await sink.receive()).octets == b"octets"

    @pytest.mark.parametrize("lanes", LANES)
    def test_fifo(lanes):
        simulate(PacketFifo(lanes), passes_packets, parameters={"lanes": lanes})
"""

from open_rnic.cocotb_tests.harness.benches import PERIOD, Within, bench, cycles, parameter, seen
from open_rnic.cocotb_tests.harness.simulation import Part, at_width, benches_of, chosen, simulate
from open_rnic.cocotb_tests.harness.streams import (
    Beat,
    Beats,
    Monitor,
    Probe,
    Rate,
    Received,
    Sink,
    Source,
    never,
    pauses,
    stalls,
)

__all__ = [
    "PERIOD", "Beat", "Beats", "Monitor", "Part", "Probe", "Rate", "Received", "Sink", "Source", "Within", "at_width",
    "bench", "benches_of", "chosen", "cycles", "never", "parameter", "pauses", "seen", "simulate", "stalls",
]  # fmt: skip
