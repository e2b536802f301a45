"""Reads of block RAM without the logic for bits that are written in the same cycle."""

from typing import NamedTuple

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.memory import Memory

__all__ = ["LateRead", "late_read"]


class LateRead(NamedTuple):
    """A read port: ``data`` is the word at ``addr`` of the last cycle in which ``en`` was 1, which it is by default."""

    addr: Signal
    en: Signal
    data: Value


def late_read(m: Module, memory: Memory, *, name: str = "word_read") -> LateRead:
    """Return a synchronous read port of ``memory``, for a design that uses no bit that is written as it is read.

    Block RAM does not say which value such a bit has. For a synchronous port of Amaranth, it is the one from before,
    which takes registers and a multiplexer beside the RAM. Yosys heeds ``no_rw_check`` only where it makes the port
    itself, of an asynchronous one and a register, which is called ``name``.
    """
    memory.attrs["no_rw_check"] = 1
    port = memory.read_port(domain="comb")
    en = Signal(init=1)
    data = Signal(memory.shape, name=name, reset_less=True)
    with m.If(en):
        m.d.sync += data.eq(port.data)
    return LateRead(port.addr, en, data)
