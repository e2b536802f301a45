"""``rnic inspect``: at a model of an RNIC behind a serial port."""

import json
import os
import pty
import random
import select
import threading
import tty
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.harness.link_model import DeviceModel
from open_rnic.host_driver.devices.udp.driver import MAC, PATH, RNIC
from open_rnic.rtl.rnic import registers as rnic_registers

ROOT = Path(__file__).parents[3]
FIELDS = MAC.registers
PHYS = {0: (0x0362, 0x5E62, 0x7949), 7: (0x0362, 0x5E63, 0x796D)}  # registers 2, 3 and 1: no link, a link


class Registers(dict):
    """Registers of an RNIC, of which PHY_ACCESS makes accesses."""

    def __init__(self, **words):
        super().__init__()
        for page in (MAC, PATH, RNIC):
            self |= {page.address(name) // 4: words[name] for name in page.registers if name in words}

    def __setitem__(self, address, word):
        assert address == MAC.address("PHY_ACCESS") // 4, "a register is written that is none of PHY_ACCESS"
        access = FIELDS["PHY_ACCESS"]
        assert access["go"].get(word)
        assert not access["write"].get(word)
        phy, number = access["phy"].get(word), access["register"].get(word)
        answered = phy in PHYS
        data = dict(zip((2, 3, 1), PHYS[phy], strict=True))[number] if answered else 0xFFFF
        super().__setitem__(MAC.address("PHY_RESULT") // 4, FIELDS["PHY_RESULT"]["answered"].put(answered) | data)


def linked(register, **fields):
    return sum(FIELDS[register][name].put(value) for name, value in fields.items())


@pytest.fixture
def board():
    """A serial port with a model of an RNIC behind it; yields its name, and the model."""
    model = DeviceModel(random.Random(1))
    model.registers = Registers(
        RNIC_IDENTITY=rnic_registers.IDENTITY,
        MAC_HI=0x0200, MAC_LO=0x0A000002, ADDRESS=0x0A000002, PREFIX=0xFFFFFF00, GATEWAY=0x0A000001,
        CAPABILITIES=linked("CAPABILITIES", phy=7, in_band=1),
        LINK=linked("LINK", up=1, speed=2, full_duplex=1, phy_answers=1),
        RX_FRAMES=1234, RX_FCS=56, RX_IGNORED=78,
    )  # fmt: skip
    master, slave = pty.openpty()
    tty.setraw(slave)
    ended = threading.Event()

    def serve():
        while not ended.is_set():
            if select.select([master], [], [], 0.05)[0]:
                os.write(master, model.receive(os.read(master, 4096)))

    thread = threading.Thread(target=serve)
    thread.start()
    yield os.ttyname(slave), model
    ended.set()
    thread.join()
    os.close(slave)
    os.close(master)


def test_the_port_of_a_board_is_shown_through_its_uart(rnic, board):
    status, out, err = rnic("inspect", f"serial:{board[0]}")
    assert (status, err) == (0, "")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert out.splitlines()[:6] == [
        "address         10.0.0.2/24, MAC 02:00:0a:00:00:02, gateway 10.0.0.1",
        "link            up, 1000 Mb/s, full duplex; frames do not pass",
        "reported by     MDIO, by the PHY at 7",
        "in band         down",
        "PHY at 0        identifier 03625e62, link down",
        "PHY at 7        identifier 03625e63, link up",
    ]
    assert ["RX_FRAMES", "1,234"] in lines
    assert ["RX_FCS", "56"] in lines
    of_mac = [name for name in FIELDS if name.startswith(("RX_", "TX_"))]
    assert [line[0] for line in lines[6:]] == [*of_mac, *["path"] * 4]
    assert "path RX_IGNORED 78" in out.splitlines()


def test_the_port_of_a_board_is_written_as_json(rnic, board):
    status, out, _ = rnic("inspect", f"serial:{board[0]}", "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["address"], found["mac"], found["source"]) == ("10.0.0.2/24", "02:00:0a:00:00:02", "mdio")
    assert found["link"] == {"up": True, "speed": 1000, "full_duplex": True}
    assert [phy["address"] for phy in found["phys"]] == [0, 7]


def test_another_design_is_reported(rnic, board):
    dict.__setitem__(board[1].registers, RNIC.address("RNIC_IDENTITY") // 4, 0x12345678)
    status, _, err = rnic("inspect", f"serial:{board[0]}")
    assert (status, err) == (1, "rnic: RNIC_IDENTITY is 0x12345678, not 0x524e4931: another design\n")


@pytest.mark.parametrize(
    ("device", "status", "said"),
    [
        ("software", 2, "a whole RNIC is udp:ADDRESS[:PORT], serial:PORT[:BAUD] or udp:sim:BOARD, not software"),
        ("serial:sim:ulx3s", 2, "a whole RNIC is"),
        ("serial:/dev/none", 1, "there is no serial port /dev/none"),
        ("udp:board", 2, "udp: needs the IPv4 address of a board"),
        ("udp:127.0.0.1:9", 1, "127.0.0.1 port 9: no answer (Connection refused)"),
    ],
)
def test_a_device_that_cannot_be_inspected_is_reported_in_one_line(rnic, device, status, said):
    found, out, err = rnic("inspect", device)
    assert (found, out) == (status, "")
    assert err.startswith(f"rnic: {said}")
    assert err.count("\n") == 1


def test_the_help_and_the_page_say_the_same_of_the_program_that_operates_the_board(rnic):
    words = "takes the board over: a program that operates it ends with an error. The board's connections go on"
    for text in (rnic("inspect", "--help")[1], (ROOT / "docs" / "maker.md").read_text()):
        assert f"{words} without it, until the next program opens the board and aborts them." in " ".join(text.split())
