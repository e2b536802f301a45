"""The buses of other designs: AXI4, AXI4-Lite, AXI4-Stream, Wishbone, and LiteDRAM's native port, with their names.

A component that has one as a member named ``m_axi`` is a module of Verilog with ports such as ``m_axi_awaddr``, by
which tools recognize the bus: see :func:`.named_ports`.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Axi4", "AxiLite", "AxiStream", "Bus", "LiteDram", "Wishbone"]


class Bus(wiring.Signature):
    """A bus of a standard, seen from its manager or source."""


class AxiStream(Bus):
    """An AXI4-Stream. ``tready`` is an input, all else are outputs.

    Parameters
    ----------
    bits : width of ``tdata``
    keep : whether there is ``tkeep``, a bit for each octet
    last : whether there is ``tlast``
    user : width of ``tuser``; 0: there is none

    """

    def __init__(self, bits: int, *, keep: bool = True, last: bool = True, user: int = 0):
        widths = {"tdata": bits, "tkeep": keep * bits // 8, "tlast": int(last), "tuser": user, "tvalid": 1}
        super().__init__({**{name: Out(width) for name, width in widths.items() if width}, "tready": In(1)})


class AxiLite(Bus):
    """An AXI4-Lite with data of 32 bits, and addresses of octets of ``address_bits`` bits."""

    def __init__(self, address_bits: int):
        super().__init__({
            "awaddr": Out(address_bits), "awprot": Out(3), "awvalid": Out(1), "awready": In(1),
            "wdata": Out(32), "wstrb": Out(4), "wvalid": Out(1), "wready": In(1),
            "bresp": In(2), "bvalid": In(1), "bready": Out(1),
            "araddr": Out(address_bits), "arprot": Out(3), "arvalid": Out(1), "arready": In(1),
            "rdata": In(32), "rresp": In(2), "rvalid": In(1), "rready": Out(1),
        })  # fmt: skip


class Axi4(Bus):
    """An AXI4 with words of ``lanes`` lanes, addresses of octets of ``address_bits`` bits, and IDs of 1 bit."""

    def __init__(self, lanes: int, address_bits: int):
        place = {
            "id": 1, "addr": address_bits, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3,
            "valid": 1,
        }  # fmt: skip
        super().__init__({
            **{f"aw{name}": Out(width) for name, width in place.items()}, "awready": In(1),
            **{f"ar{name}": Out(width) for name, width in place.items()}, "arready": In(1),
            "wdata": Out(32 * lanes), "wstrb": Out(4 * lanes), "wlast": Out(1), "wvalid": Out(1), "wready": In(1),
            "bid": In(1), "bresp": In(2), "bvalid": In(1), "bready": Out(1),
            "rid": In(1), "rdata": In(32 * lanes), "rresp": In(2), "rlast": In(1), "rvalid": In(1), "rready": Out(1),
        })  # fmt: skip


class LiteDram(Bus):
    """Two native ports of LiteDRAM's crossbar, ``writes`` and ``reads``, with words of ``bits`` bits.

    The crossbar takes and gives a word when it is due, so there is neither ``wdata_valid`` nor ``rdata_ready``.
    """

    def __init__(self, address_bits: int, bits: int):
        port = wiring.Signature({
            "cmd_valid": Out(1), "cmd_ready": In(1), "cmd_we": Out(1), "cmd_addr": Out(address_bits),
            "wdata_ready": In(1), "wdata_data": Out(bits), "wdata_we": Out(bits // 8),
            "rdata_valid": In(1), "rdata_data": In(bits),
        })  # fmt: skip
        super().__init__({"writes": Out(port), "reads": Out(port)})


class Wishbone(Bus):
    """A Wishbone B4 with words of ``lanes`` lanes; its addresses of ``address_bits`` bits count words, as in LiteX."""

    def __init__(self, lanes: int, address_bits: int):
        super().__init__({
            "cyc": Out(1), "stb": Out(1), "we": Out(1), "adr": Out(address_bits), "sel": Out(4 * lanes),
            "dat_w": Out(32 * lanes), "cti": Out(3), "bte": Out(2),
            "dat_r": In(32 * lanes), "ack": In(1), "err": In(1),
        })  # fmt: skip
