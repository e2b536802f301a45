"""The program of the TCP engine (RFC 9293 §3.10), for the sequencer.

Each event has an entry, which ends with WAIT. Segments leave at the entry ``output``, which is chosen while none is
being sent, so that a received segment never waits for transmission. Few leave at other entries: resets (``stray``, the
command ABORT), probes (``tick``), and packets that are cut through (``depart``).
"""

from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.microcode_receive import write_receive
from open_rnic.rtl.tcp.microcode_send import write_send
from open_rnic.rtl.tcp.microcode_timers import write_timers
from open_rnic.rtl.tcp.microcode_user import write_user

__all__ = ["ENTRIES", "tcp_program"]

# In the order of priority. ``stray`` is a segment of no connection.
ENTRIES = ("forget", "segment", "stray", "command", "coming", "depart", "queued", "taken", "tick", "output")


def tcp_program(config: EngineConfig) -> Program:
    """Return the program for these parameters."""
    p = Program()
    p.label("start")
    p.wait()
    write_receive(p, config)
    write_send(p, config)
    write_timers(p, config)
    write_user(p, config)
    return p
