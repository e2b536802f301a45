"""OrangeCrab, revision 0.2: an LFE5U-25F of the size of a Feather; its USB is for programs of its own."""

from amaranth.build import Attrs
from amaranth_boards.orangecrab_r0_2 import OrangeCrabR0_2_25FPlatform
from amaranth_boards.resources import UARTResource

from open_rnic.boards.board import Board

__all__ = ["BOARD"]


class WithUart:
    """An OrangeCrab's platform with a UART where a Feather has its: pins 0 (RX) and 1 (TX), for a 3.3 V adapter."""

    resources = [
        *OrangeCrabR0_2_25FPlatform.resources,
        UARTResource(0, rx="0", tx="1", conn=("io", 0), attrs=Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")),
    ]

    # A suffix for DFU would need a tool of the system's, and openFPGALoader does without one.
    @property
    def required_tools(self):
        return [each for each in super().required_tools if each != "dfu-suffix"]

    @property
    def command_templates(self):
        return [each for each in super().command_templates if "dfu-suffix" not in each]


class Platform(WithUart, OrangeCrabR0_2_25FPlatform):
    """With an LFE5U-25F."""


BOARD = Board(
    "orangecrab",
    "OrangeCrab r0.2 25F",
    part="LFE5U-25F-8MG285C",
    flow="ecp5",
    platform=Platform,
    oscillator_hz=48_000_000,
    clock_hz=48_000_000,
    lanes=2,
    widths=(1, 2, 4),
    uart="pins 0 and 1",
    loader=("--board", "orangeCrab"),
    led="rgb_led",
)
