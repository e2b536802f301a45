"""The data path of one connection with an RDMA engine."""

from amaranth.hdl import Cat, Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.lib.stream import Fifo, ReadyBuffer
from open_rnic.rtl.mpa.datapath import MpaDatapath, mpa_streams
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.layouts import MemoryPort
from open_rnic.rtl.registers.bus import RegisterBus, connect_pages

__all__ = ["ENGINE_PAGE", "RdmaDatapath"]

ENGINE_PAGE = 0x200  # the address of the engine's registers
_OF_FABRIC = "fabric", "fabric_connection", "fabric_enabled", "fabric_done", "fabric_done_of"


class RdmaDatapath(wiring.Component):
    """MPA and RDMA of one connection: a :class:`.MpaDatapath` that stores and forwards, and a :class:`.RdmaEngine`.

    ::

        tx_ulpdu ▸ RdmaEngine ▸ MpaDatapath ▸ tx_mpa
        rx_ulpdu ◂ RdmaEngine ◂ MpaDatapath ◂ rx_mpa
                     ▾ ▴ memory

    Received octets reach memory after the CRC of their FPDU has been checked. Of bad ULPDUs, only a Terminate reaches
    the host, with its verdict; the engine passes it on.

    Parameters
    ----------
    lanes, event_depth, store_and_forward
        See :class:`.MpaDatapath`; ``store_and_forward`` is not 0.
    fabric, options
        See :class:`.RdmaEngine`.

    Members
    -------
    tx_ulpdu, rx_ulpdu, tx_mpa, rx_mpa, reset
        See :class:`.MpaDatapath`. While the engine is enabled, the host sends and receives only what ends the stream.
    memory, fabric, fabric_connection, fabric_enabled, fabric_done, fabric_done_of
        See :class:`.RdmaEngine`.
    bus : In, :class:`.RegisterBus`
        The registers of both, in one page.
    irq : Out, 2 bits
        The interrupts of the data path and of the engine.

    """

    def __init__(self, lanes: int = 1, *, event_depth: int = 16, store_and_forward: int = 4096, fabric: bool = False,
                 **options: int):  # fmt: skip
        if not store_and_forward:
            raise ValueError("store_and_forward must not be 0: no octet is placed before its CRC has been checked")
        self.lanes = lanes
        self.mpa = MpaDatapath(lanes, event_depth=event_depth, store_and_forward=store_and_forward,
                               keep_terminates=True)  # fmt: skip
        self.engine = RdmaEngine(lanes, fabric=fabric, **options)
        super().__init__({
            **mpa_streams(lanes),
            "memory": Out(MemoryPort(lanes)),
            **({name: self.engine.signature.members[name] for name in _OF_FABRIC} if fabric else {}),
            "bus": In(RegisterBus()), "irq": Out(2), "reset": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.mpa = mpa = self.mpa
        m.submodules.engine = engine = self.engine
        connect, flipped = wiring.connect, wiring.flipped
        connect(m, flipped(self.tx_ulpdu), engine.host_tx)
        # The engine gives no beat in the first cycle of a ULPDU, and MPA takes none while it inserts a CRC.
        tx_queue = Fifo(TxUlpdu(self.lanes), 4)
        m.submodules.tx_queue = ResetInserter(mpa.reset)(tx_queue)
        connect(m, engine.tx_ulpdu, tx_queue.i)
        connect(m, tx_queue.o, mpa.tx_ulpdu)
        connect(m, mpa.tx_mpa, flipped(self.tx_mpa))
        connect(m, flipped(self.rx_mpa), mpa.rx_mpa)
        # Octets leave the store's block RAM late in the cycle; the engine reads a header from them.
        rx_buffer = ReadyBuffer(RxUlpdu(self.lanes))
        m.submodules.rx_buffer = ResetInserter(mpa.reset)(rx_buffer)
        connect(m, mpa.rx_ulpdu, rx_buffer.i)
        connect(m, rx_buffer.o, engine.rx_ulpdu)
        connect(m, engine.host_rx, flipped(self.rx_ulpdu))
        connect(m, engine.memory, flipped(self.memory))
        expose(m, engine, self, _OF_FABRIC)
        m.d.comb += [
            engine.reset.eq(mpa.reset),
            self.reset.eq(mpa.reset),
            self.irq.eq(Cat(mpa.irq, engine.irq)),
        ]
        connect(m, mpa.rtr, engine.rtr)
        half = ENGINE_PAGE.bit_length() - 1 - 2  # the bit of a register's number that selects
        connect_pages(m, self.bus, ((mpa.bus, ~self.bus.address[half]), (engine.bus, self.bus.address[half])))
        return m
