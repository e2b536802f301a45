"""OrangeCrab, revision 0.2: an LFE5U-25F on a board in Feather format. Its USB is not used."""

from amaranth.build import Attrs
from amaranth_boards.orangecrab_r0_2 import OrangeCrabR0_2_25FPlatform
from amaranth_boards.resources import UARTResource

from open_rnic.boards.board import Board

__all__ = ["BOARD"]


class WithUart:
    """Adds a UART to an OrangeCrab's platform, on the pins of a Feather's UART: 0 (RX) and 1 (TX), at 3.3 V."""

    resources = [
        *OrangeCrabR0_2_25FPlatform.resources,
        UARTResource(0, rx="0", tx="1", conn=("io", 0), attrs=Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")),
    ]

    # dfu-suffix is a program of the system; openFPGALoader does not need the suffix that it adds.
    @property
    def required_tools(self):
        return [each for each in super().required_tools if each != "dfu-suffix"]

    @property
    def command_templates(self):
        return [each for each in super().command_templates if "dfu-suffix" not in each]


class Platform(WithUart, OrangeCrabR0_2_25FPlatform):
    """The platform with an LFE5U-25F."""


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
