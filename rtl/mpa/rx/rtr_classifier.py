"""Distinguishes RTRs, the response to one, and Terminates from other FPDUs (RFC 6581 §9.2)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.mpa.rtr import HEADER
from open_rnic.rtl.registers import Rtr

__all__ = ["RtrClassifier"]


class RtrClassifier(wiring.Component):
    """Classifies an FPDU by its first octets and its length.

    Reserved bits are not examined, nor are STag and TO of an RTR (RFC 5041 §5.2, RFC 5040 §5.2.1). A Read RTR has MSN 1
    and MO 0, because its header is a payload of 28 octets. A Send RTR has no payload, so neither is examined (RFC 5041
    §7.1).

    Latency: 2 cycles from ``length``, 1 cycle from ``octets``.

    Members
    -------
    octets : In, 384 bits
        The first octets of the ULPDU.
    length : In, 16 bits
        Its length.
    holds : In, 1 bit
        The FPDU has ended, and stays the same although ``length`` changes.
    kinds : Out, 3 bits
        A bit for each kind of RTR, in the order of :class:`.Rtr`: the FPDU is one.
    is_response : Out, 1 bit
        It is the Read Response to a Read RTR.
    is_terminate : Out, 1 bit
        It is a Terminate, or the first segment of one, if it ``has_queue``.
    has_queue : Out, 1 bit
        It is long enough for a queue number. 1 cycle earlier than the others.
    """

    def __init__(self):
        super().__init__({
            "octets": In(8 * HEADER),
            "length": In(16),
            "holds": In(1),
            "kinds": Out(len(Rtr) - 1),
            "is_response": Out(1),
            "is_terminate": Out(1),
            "has_queue": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        size = {octets: Signal(name=f"is_{octets}_octets") for octets in (0, 14, 18, 46)}  # ``length`` is this
        with m.If(~self.holds):
            m.d.sync += [
                *(is_this.eq(self.length == octets) for octets, is_this in size.items()),
                self.has_queue.eq(~self.length.matches(*range(10))),
            ]

        def field(at, octets):
            return self.octets[8 * at:8 * (at + octets)]

        # DDP and RDMAP control without their reserved bits (RFC 5041 §4.1, RFC 5040 §4.1); version 1 of both.
        queue = field(6, 4)
        msn = field(10, 4)
        mo = field(14, 4)
        read_size = field(30, 4)
        is_first = (msn == 1 << 24) & (mo == 0)
        versions = (self.octets[:2] == 1) & (self.octets[14:16] == 1)
        untagged = versions & (self.octets[6:8] == 0b01)
        tagged = versions & (self.octets[6:8] == 0b11)
        opcode = self.octets[8:12]
        is_kind = {
            Rtr.SEND: size[0] | (untagged & (opcode == Opcode.SEND) & (queue == 0) & size[18]),
            Rtr.WRITE: tagged & (opcode == Opcode.RDMA_WRITE) & size[14],
            Rtr.READ: untagged & (opcode == Opcode.RDMA_READ_REQUEST) & (queue == 1 << 24) & is_first & (read_size == 0)
                      & size[46],
        }  # fmt: skip
        m.d.sync += [
            *(self.kinds[kind - 1].eq(value) for kind, value in is_kind.items()),
            self.is_response.eq(tagged & (opcode == Opcode.RDMA_READ_RESPONSE) & size[14]),
            self.is_terminate.eq(versions & ~self.octets[7] & (opcode == Opcode.TERMINATE) & (queue == 2 << 24)),
        ]
        return m
