"""A bank of registers: what an access of the host does to a field of several bits."""

from open_rnic.cocotb_tests.rtl.rdma.streams import run
from open_rnic.rtl.registers import Access, Field, Register
from open_rnic.rtl.registers.bank import RegisterBank

FLAGS = Register("FLAGS", 0, "", (Field("flags", 4, 8, "", Access.CLEAR),))


def cleared(word):
    """Write a word to FLAGS, and return which flags that cleared."""
    bank = RegisterBank([FLAGS])
    seen = []

    async def write(ctx):
        ctx.set(bank.bus.write_data, word)
        ctx.set(bank.bus.write, 1)
        ctx.set(bank.bus.request, 1)
        while not ctx.get(bank.bus.ack):
            seen.append(ctx.get(bank.FLAGS.clear_flags))
            await ctx.tick()
            ctx.set(bank.bus.request, 0)

    run(bank, write, cycles=10)
    return [each for each in seen if each]


def test_each_bit_that_is_written_as_1_clears_its_flag_once_and_no_other():
    for n in range(8):
        assert cleared(1 << n + 4 | 0xF) == [1 << n]
