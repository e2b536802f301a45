"""Ethernet ports of boards: pins, clocks, delays and addresses."""

import json
import re
from collections import Counter
from dataclasses import asdict, replace

import pytest
from amaranth.build import Subsignal
from amaranth.hdl import ClockDomain, Module

from open_rnic.boards import BOARDS, CONNECTIONS, find
from open_rnic.boards.board import Core, Interface
from open_rnic.boards.build import BuildError, Result, _nets, build
from open_rnic.boards.clock import PLLS, ecp5_pll
from open_rnic.boards.flows import FLOWS
from open_rnic.cocotb_tests.boards.designs import whole
from open_rnic.cocotb_tests.boards.test_build import RESULT
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.host_driver.tools.cli import run
from open_rnic.host_driver.tools.static_address import StaticAddress
from open_rnic.rtl.mac.rgmii import RgmiiAdapter, RgmiiDelays
from open_rnic.rtl.tcp.config import Station
from open_rnic.rtl.tcp.send_ring import ROOM

WITH_ETHERNET = [name for name in BOARDS if find(name).ethernet]

# The pins as others have published them: chubby75 for the 5A-75B 7.0, wuxx's tables for the i5 and the i9, litex-boards
# for the others. RXC, RX_CTL, RXD; TXC, TX_CTL, TXD; MDC, MDIO, reset, if there is one.
# With MII: RX_CLK, RX_DV, RXD; TX_CLK, TX_EN, TXD.
COLORLIGHT_I = "H2 P2 K2 L1 N1 P1 G1 K1 G2 H1 J1 J3 N5 P5 P4"
ECPIX = "E11 A11 B11 A10 B10 A9 A12 C9 D8 C8 B8 A8 C11 A13 C13"
PUBLISHED = {
    "arty_a7": "F15 G16 D18 E17 E18 G17 H16 H15 H14 J14 J13 H17 F16 K13 C16",
    "colorlight_5a75b": "M1 N6 N1 M5 N5 M6 M2 M3 L1 L3 P2 L4 P3 T2 P5",
    "colorlight_5a75b_r8": "J1 J2 K2 J3 K1 K3 L1 L2 M2 M1 P1 R1 R5 T4",
    "colorlight_i5": COLORLIGHT_I,
    "colorlight_i9": COLORLIGHT_I,
    "ecpix5": ECPIX,
    "ecpix5_45f": ECPIX,
    "versa_ecp5": "L20 U19 T20 U20 T19 R18 P19 R20 N19 N20 P18 P20 T18 U18 U17",
}
ORDER = {
    Interface.RGMII: ("rx_clk", "rx_ctl", "rx_data", "tx_clk", "tx_ctl", "tx_data", "mdc", "mdio", "rst"),
    Interface.MII: ("rx_clk", "rx_dv", "rx_data", "tx_clk", "tx_en", "tx_data", "mdc", "mdio", "rst"),
}


def pins_of(resource):
    """The pins of each part of a resource."""
    found = {}
    for part in resource.ios:
        for each in part.ios if isinstance(part, Subsignal) else [part]:
            found[part.name.replace("ctrl", "ctl") if isinstance(part, Subsignal) else ""] = each
    return found


@pytest.mark.parametrize("name", WITH_ETHERNET)
def test_a_packet_has_room_in_each_ring(name):
    assert min(find(name).ethernet.ring_of(connections) for connections in CONNECTIONS) >= ROOM


@pytest.mark.parametrize("name", WITH_ETHERNET)
def test_the_pins_are_those_that_others_have_published(name):
    board = find(name)
    platform = board.platform(**FLOWS[board.flow].toolchain)
    pins = pins_of(platform.lookup(*board.ethernet.resource))
    order = [part for part in ORDER[board.ethernet.interface] if part in pins or part != "rst"]
    assert [pin for part in order for pin in pins[part].names] == PUBLISHED[name].split()
    for part, each in pins.items():
        outputs = {Interface.RGMII: ("tx_clk", "tx_ctl", "tx_data"), Interface.MII: ("tx_en", "tx_data")}
        output = part in (*outputs[board.ethernet.interface], "mdc", "rst")
        assert each.dir == ("io" if part == "mdio" else "o" if output else "i"), part
    assert "rst" not in pins or pins["rst"].invert
    assert not any(each.invert for part, each in pins.items() if part != "rst")


@pytest.mark.parametrize("name", WITH_ETHERNET)
def test_the_pins_of_a_port_have_no_other_use(name):
    board = find(name)
    platform = board.platform(**FLOWS[board.flow].toolchain)
    used = [(platform.default_clk, 0), ("uart", 0), board.ethernet.resource]
    used += [(led, 0) for led in (board.led,) if led] + [(each, 0) for each in (board.ethernet.reference,) if each]
    pins = []
    for resource in used:
        for each in pins_of(platform.lookup(*resource)).values():
            pins += each.names if hasattr(each, "names") else [*each.p.names, *each.n.names]
    assert len(set(pins)) == len(pins)


@pytest.mark.parametrize("name", [name for name in WITH_ETHERNET if find(name).flow == "ecp5"])
def test_mdio_has_a_pull_up(name):
    """Otherwise, an address without a PHY might read as 0, as if a PHY answered. The Arty has a resistor."""
    board = find(name)
    pins = board.platform(**FLOWS[board.flow].toolchain).lookup(*board.ethernet.resource)
    assert [part.attrs.get("PULLMODE") for part in pins.ios if part.name == "mdio"] == ["UP"]


@pytest.mark.parametrize("name", ["ecpix5", "ecpix5_45f"])
def test_the_reset_of_the_ecpix5_is_not_open(name):
    platform = find(name).platform()
    assert platform.lookup(platform.default_rst).attrs["PULLMODE"] == "UP"


def test_pins_beside_a_delayed_clock_pass_the_same_element():
    """Only then TXC is later than TXD by the time that is asked for."""
    taps = {}
    for tx_clock in (0, 2000):
        platform = find("ecpix5").platform()
        m = Module()
        m.domains += ClockDomain("mac_tx"), ClockDomain("mac_rx")
        m.submodules.adapter = RgmiiAdapter(platform.request("eth_rgmii", 0, dir="-"), RgmiiDelays(tx_clock=tx_clock))
        text = platform.prepare(m, emit_src=False).files["top.il"]
        text = text if isinstance(text, str) else text.decode()
        taps[tx_clock] = Counter(re.findall(r"parameter \\DEL_VALUE (?:signed )?(\d+)", text))
    assert taps == {0: {}, 2000: {"80": 1, "0": 5}}


@pytest.mark.parametrize("name", WITH_ETHERNET)
def test_the_clocks_of_an_rnic_can_be_made(name):
    board = find(name)
    dividers, _ = PLLS[board.flow]
    made = board.clocks(Core.RNIC)
    assert dividers(board.oscillator_hz, *made.values())
    assert next(iter(made)) == "sync"
    assert made["sync"] >= 50_000_000  # 32 bits per cycle: more than 1 Gb/s, with time for headers
    every = board.all_clocks(Core.RNIC)
    speed = 125_000_000 if board.ethernet.interface is Interface.RGMII else 25_000_000
    assert (every["mac_rx"], every["mac_tx"]) == (speed, speed)
    assert board.core is Core.RNIC


def test_an_ecp5_pll_makes_several_clocks_from_one_vco():
    made = ecp5_pll(25_000_000, 50_000_000, 125_000_000)
    vco = 25e6 / made["CLKI_DIV"] * made["CLKFB_DIV"] * made["CLKOP_DIV"]
    assert 400e6 <= vco <= 800e6
    assert (vco / made["CLKOP_DIV"], vco / made["CLKOS_DIV"]) == (50e6, 125e6)
    with pytest.raises(ValueError, match=r"no PLL can make 60 and 125 MHz from 25 MHz"):
        ecp5_pll(25_000_000, 60_000_000, 125_000_000)  # their VCO would have 1500 MHz


@pytest.mark.parametrize("name", [
    "colorlight_5a75b", pytest.param("ecpix5", marks=long("other frequencies of the same PLL, in as large a design")),
])  # fmt: skip
def test_nextpnr_gets_all_frequencies(name):
    board = find(name)
    files = whole(name, 1)
    constraints, design = files["top.lpf"], files["top.il"]
    assert 'FREQUENCY PORT "eth_rgmii_0__rx_clk__io" 125000000.0 HZ;' in constraints
    assert f'attribute \\FREQUENCY_PIN_CLKOP "{board.ethernet.clock_hz / 1e6}"' in design
    assert 'attribute \\FREQUENCY_PIN_CLKOS "125.0"' in design
    assert ('"eth_rgmii_0__rst__io"' in constraints) == bool(board.ethernet.settings.reset)


CLOCKS = {"sync": 50_000_000, "mac_tx": 125_000_000}


def test_every_clock_is_judged(tmp_path):
    fmax = {
        "$glbnet$clk": {"achieved": 60.0, "constraint": 50.0},
        "$glbnet$pll.mac_tx_clk": {"achieved": 124.9, "constraint": 125.0},
    }
    assert {domain: name for domain, (name, _) in _nets(fmax, CLOCKS, tmp_path).items()} == {
        "sync": "$glbnet$clk", "mac_tx": "$glbnet$pll.mac_tx_clk",
    }  # fmt: skip
    slow = Result(**{**vars(RESULT), "clocks": {"sync": (60e6, 50e6), "mac_tx": (124.9e6, 125e6)}})
    assert not slow.met
    assert slow.slow == ["mac_tx"]
    fmax["$glbnet$pll.mac_tx_clk"]["constraint"] = 12.0
    with pytest.raises(BuildError, match="nextpnr was to be asked for 125 MHz of mac_tx, not 12: see "):
        _nets(fmax, CLOCKS, tmp_path)
    del fmax["$glbnet$pll.mac_tx_clk"]
    with pytest.raises(BuildError, match="nextpnr reports no clock mac_tx: see "):
        _nets(fmax, CLOCKS, tmp_path)


def test_other_seeds_are_tried_if_a_clock_is_too_slow(tmp_path, monkeypatch):
    """Unless the user has chosen one."""
    reached = {1: 49e6, 2: 51e6, 3: 60e6}
    tried = []

    def read(*arguments, **_):
        seed = arguments[4]
        tried.append(seed)
        return replace(RESULT, seed=seed, clocks={"sync": (reached[seed], 50e6)})

    monkeypatch.setattr("open_rnic.boards.build._make", lambda *_: False)
    monkeypatch.setattr("open_rnic.boards.build._read", read)
    assert build("ecpix5", tmp_path, stage=lambda _: None).seed == 2
    assert not build("ecpix5", tmp_path, seed=1, stage=lambda _: None).met
    reached[2] = reached[3] = 49.9e6
    assert not build("ecpix5", tmp_path, stage=lambda _: None).met
    assert tried == [1, 2, 1, 1, 2, 3]


def test_a_slow_clock_of_the_mac_is_reported(monkeypatch, capsys):
    slow = replace(RESULT, core="rnic", clocks={"sync": (60e6, 50e6), "mac_tx": (120e6, 125e6)})
    monkeypatch.setattr("open_rnic.boards.build.build", lambda *_, **__: slow)
    assert run(["build", "ecpix5"]) == 1
    captured = capsys.readouterr()
    assert "address: 10.0.0.2/24, MAC 02:00:0a:00:00:02\n" in captured.out
    assert "clock sync: 60.0 MHz reached, 50.0 MHz asked\n" in captured.out
    assert captured.err == (
        "rnic: ecpix5: too slow: mac_tx: 120.0 MHz reached, 125.0 MHz asked; another --seed may do better\n"
    )


def test_the_address_is_that_of_the_command(monkeypatch, tmp_path):
    stations = []

    def built(name, folder, *, station, **_):
        stations.append(station)
        return RESULT

    monkeypatch.setattr("open_rnic.boards.build.build", built)
    run(["build", "ecpix5", "--address", "192.168.7.9/26,192.168.7.1"])
    run(["build", "ulx3s"])
    assert stations == [Station(0x0200C0A80709, 0xC0A80709, 0xFFFFFFC0, 0xC0A80701), None]


@pytest.mark.parametrize(("command", "says"), [
    (["ecpix5", "--address", "10.0.0.2"], "--address: an address must be ADDRESS/PREFIX[,GATEWAY], not '10.0.0.2'"),
    (["ecpix5", "--address", "10.0.0.2/24,1,2"], "--address: an address must be ADDRESS/PREFIX[,GATEWAY], not '10."),
    (["ecpix5", "--address", "10.0.0.300/24"], "--address: "),
    (["ecpix5", "--address", "10.0.0.255/24"], "--address: 10.0.0.255/24 is not the address of a host"),
    (["ecpix5", "--address", "224.0.0.1/24"], "--address: 224.0.0.1/24 is not the address of a host"),
    (["ecpix5", "--address", "10.0.0.2/24,10.0.1.1"],
     "--address: the gateway 10.0.1.1 is not another host in 10.0.0.0/24"),
    (["ulx3s", "--address", "10.0.0.2/24"], "--address 10.0.0.2/24 needs --core rnic: mpa has no address"),
    *(([board, "--memory", "sdram"],
       f"--memory sdram is for a whole RNIC, and {board} has no Ethernet that one could use\n")
      for board in ("ulx3s", "orangecrab", "tang_primer_20k", "ice40_hx8k")),
    (["ulx3s", "--memory", "4096", "--samples"],
     "--memory 4096 and --samples are for a whole RNIC, and ulx3s has no Ethernet that one could use\n"),
    (["ecpix5", "--core", "mpa", "--connections", "2"], "--connections 2 is for a whole RNIC, not for --core mpa\n"),
    (["colorlight_5a75b", "--memory", "SDRAM"],
     "Invalid value for '--memory': 'SDRAM' is neither a number of octets nor sdram\n"),
    (["arty_a7", "--memory", "4097"], "memory must be a power of 2, 1024 to 1048576 octets, not 4097\n"),
    (["colorlight_5a75b", "--memory", "4194304"],
     "memory must be a power of 2, 1024 to 1048576 octets, or sdram, which has 4194304, not 4194304\n"),
    (["colorlight_5a75b", "--memory", "1048576"],
     "colorlight_5a75b has 114688 octets of block RAM, too few for 1048576 of memory and 32768 of rings of TCP: "
     "choose less --memory, or sdram, which has 4194304\n"),
    (["arty_a7", "--memory", "262144", "--connections", "16"],
     "arty_a7 has 204800 octets of block RAM, too few for 262144 of memory and 65536 of rings of TCP: "
     "choose less --memory\n"),
    (["ecpix5", "--connections", "3"], "connections must be one of 1, 2, 4, 8, 16, not 3"),
    (["ulx3s", "--core", "rnic"], "ulx3s has no Ethernet that an RNIC could use: choose --core mpa"),
    (["ecpix5", "--lanes", "2"], "the whole RNIC is 1 lane wide, not 2: choose --core mpa or rdma for another width"),
])  # fmt: skip
def test_wrong_options_are_rejected_in_one_line(command, says, capsys):
    assert run(["build", *command]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"rnic: {says}")
    assert line.count("\n") == 1


def test_the_mac_follows_from_the_address():
    address = StaticAddress.parse("10.1.2.3/8")
    assert address.mac == bytes((2, 0, 10, 1, 2, 3))
    assert str(address) == "10.1.2.3/8"
    assert address.station.gateway == 0


def test_the_tables_have_the_builds_of_each_core(tmp_path, capsys):
    built = replace(RESULT, board="ecpix5", core="rnic", clocks={"sync": (70e6, 62.5e6), "mac_rx": (190e6, 125e6)})
    (tmp_path / "ecpix5").mkdir()
    (tmp_path / "ecpix5" / "result.json").write_text(json.dumps(asdict(built)))
    assert run(["boards", "--markdown", "--core", "rnic", "--out", str(tmp_path)]) == 0
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert set(rows) == {"board", "---", *WITH_ETHERNET}
    assert run(["boards", "--names", "--core", "rnic"]) == 0
    assert capsys.readouterr().out.split() == WITH_ETHERNET
    assert "| 70.0 / 62.5, mac_rx 190.0 / 125 |" in rows["ecpix5"]
    assert "not built" in rows["colorlight_i9"]
    assert run(["boards", "--markdown", "--out", str(tmp_path)]) == 0
    assert "not built" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| ecpix5 "))
