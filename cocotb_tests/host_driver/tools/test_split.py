"""``rnic split``: profiles are validated, splits are predicted, and interrupted sweeps are resumed."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections import Counter
from concurrent.futures import Executor, Future
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_bench_rtl import Tools
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
from open_rnic.host_driver.tools.bench.rtl.store import Store
from open_rnic.host_driver.tools.bench.rtl.sweep import cases
from open_rnic.host_driver.tools.cli import run
from open_rnic.host_driver.tools.split import devices, measure
from open_rnic.host_driver.tools.split.model import (
    REFERENCE,
    SIZES,
    WHOLE,
    Setting,
    UnknownWidthError,
    blocks_needed,
    figures,
    name,
    named,
    predict,
    splits,
)
from open_rnic.host_driver.tools.split.page import verdicts
from open_rnic.host_driver.tools.split.profile import (
    Block,
    BlockName,
    Cost,
    Device,
    Figure,
    Host,
    Link,
    ProfileError,
    Rate,
    Work,
    dump,
    find,
    known,
)
from open_rnic.host_driver.tools.split.profile import read as read_profile
from open_rnic.host_driver.tools.split.report import Report, crossovers, front
from open_rnic.host_driver.tools.split.stages import MPA, RDMA, RTL, Direction, Split, Stage
from open_rnic.host_driver.tools.split.sweep import Sweep


def figure(value):
    return Figure(value, "invented for a test")


def rate(value):
    return Rate(value, "invented for a test")


def invented(luts=500, clock=1e8, lanes=("2", "4"), **more):
    blocks = {name: Block(figure(luts), rate(clock)) for name in (*blocks_needed(), WHOLE)}
    return Device("an invented device", dict.fromkeys(lanes, blocks), **more)


def whole(clock=1e8, **more):
    """Return a device that can do everything, at 1 lane, and all but TCP at 2 lanes."""
    blocks = {str(lanes): {name: Block(figure(500), rate(clock)) for name in blocks_needed(lanes, RTL)}
              for lanes in (1, 2)}  # fmt: skip
    return Device("an invented device", blocks, **more)


HOST, LINK, DEVICE = find(Host, "cortex-a53"), find(Link, "pcie-gen3-x4"), invented()
SETTING = Setting(HOST, LINK, DEVICE, tcp=False)
NOTHING, CRC, MARKERS = (Split.of(each) for each in ((), ("crc-generation", "crc-check"),
                                                      ("marker-insertion", "marker-removal")))  # fmt: skip


def changed(profile, **more):
    return type(profile)(**{name: getattr(profile, name) for name in profile.__struct_fields__} | more)


def with_crc(cycles):
    """Return a host whose CRC takes ``cycles`` per octet, at 3 GHz."""
    return changed(HOST, clock_hz=rate(3e9), crc={"only": Cost(figure(cycles), figure(0))})


def verdict(setting, split):
    """Return the report's sentence about a split, compared with the host alone."""
    both = [predict(setting, each) for each in (NOTHING, split)]
    [said] = verdicts(Report(setting, (), both, frozenset({NOTHING.device, split.device})))
    return said


# --- profiles


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in (Host, Link, Device) for name in known(kind)],
    ids=str,
)
def test_a_shipped_profile_is_read_and_written_unchanged(kind, name):
    profile = find(kind, name)
    assert read_profile(kind, dump(profile), name) == profile


TEXT = dump(LINK).splitlines()


@pytest.mark.parametrize("nth", range(len(TEXT)), ids=lambda nth: TEXT[nth].split(" = ")[0])
def test_a_profile_that_lacks_an_entry_is_rejected_with_its_name(nth):
    with pytest.raises(ProfileError, match=rf"^x.toml: line \d+: .*`{TEXT[nth].split(' = ')[0]}`"):
        read_profile(Link, "\n".join(TEXT[:nth] + TEXT[nth + 1 :]), "x.toml")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('latency-s = { value = -1e-9, source = "a" }', "latency-s.value: expected `float` >= 0.0, not -1e-09"),
        ('latency-s = { value = nan, source = "a" }', "latency-s.value: expected `float` >= 0.0, not nan"),
        ('latency-s = { value = inf, source = "a" }', "latency-s.value: expected `float` < 1e+18, not inf"),
        ('latency-s = { value = true, source = "a" }', "latency-s.value: expected `float`, got `bool`"),
        ("latency-s = { value = 1 }", "latency-s: object missing required field `source`"),
        ('latency-s = { value = 1, source = "" }', "latency-s.source: expected `str` of length >= 1, not ''"),
        ("latency-s = 1", "latency-s: expected `object`, got `int`"),
        ('bits-per-second = { value = 0, source = "a" }', "bits-per-second.value: expected `float` > 0.0, not 0"),
    ],
)
def test_an_invalid_figure_is_rejected_with_its_line(entry, said):
    name = entry.split(" = ")[0]
    [nth] = [nth for nth, line in enumerate(TEXT) if line.startswith(f"{name} ")]
    with pytest.raises(ProfileError) as error:
        read_profile(Link, "\n".join([*TEXT[:nth], entry, *TEXT[nth + 1 :]]), "x.toml")
    assert str(error.value) == f"x.toml: line {nth + 1}: {said}"


def test_an_unknown_entry_is_rejected_with_its_line_even_in_a_table_with_free_names():
    lines = dump(HOST).splitlines()
    at = lines.index("[crc.armv8]") + 1
    with pytest.raises(ProfileError, match=rf"^x.toml: line {at + 1}: crc.armv8.per-bit: .*unknown field `per-bit`$"):
        read_profile(Host, "\n".join([*lines[:at], "per-bit = 3", *lines[at:]]), "x.toml")


@pytest.mark.parametrize(
    ("name", "unknown"),
    [("[lanes.2.Fence]", "[lanes.2.Fenze]"), ("[lanes.2.Fence]", "[lanes.3.Fence]"),
     ("[stages.startup]", "[stages.warp]")],
)  # fmt: skip
def test_an_unknown_block_width_or_stage_is_rejected_with_its_line(name, unknown):
    works = {"startup": Work(figure(100), rate(1e8), figure(1))}
    lines = dump(invented(stages=works)).splitlines()
    at = lines.index(name)
    with pytest.raises(ProfileError, match=rf"^x.toml: line {at + 1}: .*'(Fenze|3|warp)'$"):
        read_profile(Device, "\n".join([*lines[:at], unknown, *lines[at + 1 :]]), "x.toml")


def test_profiles_can_name_exactly_the_blocks_that_splits_need():
    assert set(get_args(BlockName)) == {*blocks_needed(1, RTL), *blocks_needed(2, RTL), WHOLE}


def test_invalid_toml_and_another_kind_of_profile_are_rejected():
    with pytest.raises(ProfileError, match=r"^x.toml: .*line 2"):
        read_profile(Link, 'kind = "link"\ntitle = = 1', "x.toml")
    with pytest.raises(ProfileError, match="line 1: kind: invalid value 'link'"):
        read_profile(Host, dump(LINK), "x.toml")


# --- predictions


def test_a_host_with_a_fast_crc_does_not_gain_from_an_offload():
    """With CRC-32C at 0.1 cycles per octet, both CRCs of an FPDU cost only 0.2 cycles for each of its octets."""
    setting = replace(SETTING, host=with_crc(0.1))
    point = predict(setting, NOTHING, [REFERENCE]).points[0]
    spent = point.stages["crc-generation"] + point.stages["crc-check"]
    assert spent / REFERENCE == pytest.approx(0.2, rel=0.03)  # an FPDU has more octets than its share of the message
    offloaded = predict(setting, CRC, [REFERENCE]).points[0]
    assert offloaded.rate < point.rate
    assert verdict(setting, CRC).endswith("offload does not pay.")


def test_a_host_with_a_slow_crc_gains_from_an_offload():
    setting = replace(SETTING, host=with_crc(8.0), device=invented(clock=1e9))
    assert verdict(setting, CRC).endswith("offload pays.")


@pytest.mark.parametrize("split", [NOTHING, CRC, MARKERS, Split(MPA)], ids=lambda split: "+".join(sorted(split.device)))
def test_stages_on_the_device_cost_luts_and_no_host_cycles(split):
    prediction = predict(SETTING, split)
    for point in prediction.points:
        assert not point.stages.keys() & set(split.device)
        assert point.stages.keys() - {"link"} == set(Stage) - split.device - {Stage.STARTUP, Stage.TCP}
    assert bool(prediction.luts) == bool(split.device)


def test_work_that_goes_back_and_forth_crosses_the_link_each_time():
    """To check a CRC on the device, FPDUs without markers must cross the link to the device, and back."""
    once = predict(SETTING, NOTHING, [REFERENCE]).points[0].link
    thrice = predict(SETTING, CRC, [REFERENCE]).points[0].link
    assert once["transmit"] == once["receive"] == pytest.approx(REFERENCE * 1.022, rel=0.002)  # 46 FPDUs, with markers
    assert thrice["transmit"] == pytest.approx(once["transmit"] - 46 * 4)  # without CRCs
    assert thrice["receive"] == pytest.approx(3 * once["receive"], rel=0.01)


def test_only_payload_crosses_the_link_if_the_device_does_everything():
    device = whole(stages={"startup": Work(figure(10), rate(1e8), figure(1))})
    setting = replace(SETTING, device=device, lanes=1, tcp=True)
    everything = Split(frozenset(Stage))
    assert everything in list(splits(setting))
    point = predict(setting, everything, [REFERENCE]).points[0]
    assert point.link == {"transmit": REFERENCE, "receive": REFERENCE}
    assert point.stages.keys() == {"link"}


def test_a_host_that_does_tcp_gets_the_fpdus_of_the_device_back():
    """MPA on the device without TCP: octets cross the link as ULPDUs, as FPDUs, and in frames."""
    setting = replace(SETTING, device=whole(), lanes=1, tcp=True)
    found = [predict(setting, split, [REFERENCE]) for split in named(setting)]
    link = {each.name: each.points[0].link["transmit"] for each in found}
    ulpdus, fpdus = sum(setting.ulpdus(REFERENCE)), link["TCP"]
    assert link["nothing"] == fpdus + 46 * 54
    assert link["TCP, MPA"] == ulpdus
    assert link["TCP, MPA, RDMA"] == REFERENCE
    assert link["MPA"] == ulpdus + fpdus + link["nothing"]
    assert link["MPA, RDMA"] == REFERENCE + fpdus + link["nothing"]


def test_placement_and_tcp_are_chosen_where_the_device_has_their_blocks():
    found = {lanes: [name(each.device) for each in named(replace(SETTING, device=whole(), lanes=lanes, tcp=True))]
             for lanes in (1, 2)}  # fmt: skip
    assert found[1] == ["nothing", "CRC", "markers", "markers, CRC", "FPDUs", "MPA", "MPA, RDMA", "TCP", "TCP, MPA",
                        "TCP, MPA, RDMA"]  # fmt: skip
    assert found[2] == found[1][:7]  # TCP is 1 lane wide
    assert len(list(splits(replace(SETTING, device=whole(), lanes=1, tcp=True)))) == 512
    assert all(len(split.device & RDMA) in (0, 2) for split in splits(replace(SETTING, device=whole(), lanes=2)))


def test_a_call_of_tcp_takes_several_fpdus_of_a_message():
    setting = replace(SETTING, tcp=True)
    calls = HOST.tcp_transmit
    for size, count in ((1, 1), (REFERENCE, 46), (1 << 20, 16 * 46)):
        spent = predict(setting, NOTHING, [size]).points[0].cycles["transmit"]["tcp"]
        octets = predict(setting, NOTHING, [size]).points[0].link["transmit"] - 54 * count
        expected = calls.per_octet.value * octets + calls.per_call.value * max(count / 45, 1)
        assert spent == pytest.approx(expected, rel=0.03)


def test_the_slowest_part_of_the_device_limits_its_rate():
    """TCP takes the most cycles for a full segment."""
    setting = replace(SETTING, device=whole(clock=1e6), lanes=1, tcp=True)
    assert predict(setting, Split(RTL), [REFERENCE]).points[0].limit == "device TX: tcp"
    assert predict(setting, Split(MPA | RDMA), [REFERENCE]).points[0].limit in (
        "device TX: fence to crc-generation", "device RX: marker-removal to rtr-detection",
    )  # fmt: skip


@pytest.mark.parametrize(("markers", "crc", "count"), [(True, True, 128), (False, True, 32), (False, False, 8)])
def test_splits_differ_only_in_active_stages(markers, crc, count):
    found = list(splits(replace(SETTING, markers=markers, crc=crc)))
    assert len({split.device for split in found}) == len(found) == count
    assert NOTHING in found
    assert Split(MPA) in found


@pytest.mark.parametrize("link", known(Link))
def test_a_larger_message_takes_longer_and_no_rate_exceeds_wire_and_link(link):
    setting = replace(SETTING, link=find(Link, link), wire=10.0)
    for split in named(setting):
        points = predict(setting, split).points
        assert all(a.half_round_trip < b.half_round_trip for a, b in pairwise(points))
        most = min(10e9, setting.link.bits_per_second.value) / 8
        assert all(point.rate < most and point.rate <= point.other for point in points)


def test_the_limit_is_named():
    slow = Link(**{name: getattr(LINK, name) for name in LINK.__struct_fields__} | {"bits_per_second": rate(1e6)})
    at = {
        "host RX: crc-check": replace(SETTING, host=with_crc(50)),
        "link TX, to the device": replace(SETTING, link=slow),
        "wire": replace(SETTING, wire=0.001),
    }
    for limit, setting in at.items():
        assert predict(setting, NOTHING, [REFERENCE]).points[0].limit == limit
    slow_device = replace(SETTING, device=invented(clock=1e5))
    assert predict(slow_device, MARKERS, [REFERENCE]).points[0].limit.startswith("device ")


def test_cores_are_cycles_per_second_unless_another_resource_is_too_slow():
    prediction = predict(SETTING, NOTHING)
    cycles = prediction.at(REFERENCE).cycles_per_octet
    assert prediction.cores(1) == pytest.approx(1e9 / 8 * cycles / HOST.clock_hz.value)
    assert prediction.cores(100) == "link TX, to the device"
    assert prediction.worth(100) == pytest.approx(100 * prediction.cores(1))  # the table has this in brackets


def test_scattered_memory_costs_more_than_contiguous_memory():
    together, broken = (predict(replace(SETTING, pieces=pieces), NOTHING, [REFERENCE]).points[0] for pieces in (0, 128))
    more = broken.stages["placement"] - together.stages["placement"]
    assert more == pytest.approx(HOST.placement_receive.per_piece.value * 11 * 45.5, rel=0.03)


def test_a_width_without_figures_is_rejected():
    with pytest.raises(UnknownWidthError, match="no figures for 16 lanes: there are 2, 4"):
        predict(replace(SETTING, lanes=16), CRC)


def lines_of(*those):
    """Return predictions in which a message takes the time that a function of its size gives."""
    sizes = (1, 4, 16, 64)
    return [
        replace(line, points=tuple(
            replace(point, rate=size / spent(size), half_round_trip=spent(size))
            for size, point in zip(sizes, line.points, strict=True)
        ))
        for split, spent in those
        for line in [predict(SETTING, split, sizes)]
    ]  # fmt: skip


def test_a_crossover_is_where_a_split_overtakes_the_host():
    """The device has a high cost per FPDU and none per octet; the host has a high cost per octet."""
    host, device = lines_of((NOTHING, lambda size: size), (CRC, lambda size: 8))
    for what, height in (("throughput", 1), ("half round trip", 8)):
        [found] = crossovers([host, device], what)
        assert (found.size, found.value) == pytest.approx((8, height))
        assert (found.before, found.after) == ("nothing", "CRC")
    assert crossovers([host, host], "throughput") == []


def test_a_crossover_is_where_one_offload_overtakes_another():
    lines = lines_of((NOTHING, lambda size: 100), (CRC, lambda size: size), (MARKERS, lambda size: 8))
    [found] = crossovers(lines, "throughput")
    assert (found.size, found.before, found.after) == (pytest.approx(8), "CRC", "markers")


def test_no_split_is_better_than_the_pareto_front():
    found = [predict(SETTING, each, [REFERENCE]) for each in splits(SETTING)]
    best = front(found)
    assert best[0].luts == 0
    for each in found:
        assert any(
            one.luts <= each.luts and one.at(REFERENCE).cycles_per_octet <= each.at(REFERENCE).cycles_per_octet + 1e-9
            for one in best
        )


# --- a device's figures


def test_a_part_uses_the_figures_in_the_store(monkeypatch, tmp_path):
    tools = Tools(monkeypatch)
    store = Store(tmp_path)
    wanted = cases([*blocks_needed(), "RdmaEngine", WHOLE], [2], ["25f"], 3)
    tools.sweep(store, wanted)
    ran = Counter(tools.ran)
    found = devices.device("25f", tmp_path)
    assert tools.ran == ran  # no jobs were run
    assert found.device.lanes["2"]["Fence"].clock_hz.value == 102e6  # the median of the seeds
    assert found.device.lanes["2"]["Fence"].luts.source == "rnic bench rtl --block Fence --lanes 2 --part 25f --seeds 3"
    assert found.origin.startswith("figures of rnic bench rtl here, for 2 lanes")
    assert "RdmaEngine" in found.device.lanes["2"]
    assert "NetworkPath" not in found.device.lanes["2"]


def test_idle_blocks_take_no_luts():
    """Exceptions are blocks that framing needs: the packer and the checker."""
    alone = {name: Block(figure(1 << nth), rate(1e8)) for nth, name in enumerate(blocks_needed())}
    setting = replace(SETTING, device=Device("powers of two", {"2": alone}))
    both = figures(setting, Split(MPA))[0]
    for markers, crc, left_out in ((False, True, "MarkerInserter"), (True, False, "CrcAppender")):
        luts, _ = figures(replace(setting, markers=markers, crc=crc), Split(MPA))
        assert both - luts == alone[left_out].luts.value


def test_a_whole_data_path_is_compared_with_its_blocks():
    [line, _] = devices.whole(DEVICE)
    assert line == "MpaDatapath of 2 lanes as a whole: 500 LUTs, 100 MHz; its blocks alone: 6,000 LUTs, 100 MHz"


@pytest.mark.parametrize(
    ("part", "lanes"), (dict.fromkeys(PARTS, "1, 2") | {"85f": "1, 2, 4, 8, 16", "gw2a": "1, 2, 4"}).items()
)
def test_the_package_has_figures_of_each_part(part, lanes, tmp_path):
    assert devices.device(part, tmp_path).origin == f"figures that come with this package, for {lanes} lanes"


# --- sweeps


class Once(Executor):
    """Runs ``jobs`` jobs immediately, and then fails."""

    def __init__(self, jobs):
        self.left = jobs
        self.ran = 0

    def submit(self, job, /, *arguments):
        future = Future()
        if self.ran == self.left:
            future.set_exception(ConnectionError("gone"))
            return future
        self.ran += 1
        future.set_result(job(*arguments))
        return future


def test_an_interrupted_sweep_of_splits_is_resumed(tmp_path):
    wanted = [(SETTING, split) for split in splits(SETTING)]
    first, second, third = Once(3), Once(100), Once(0)
    with pytest.raises(ConnectionError):
        asyncio.run(Sweep(lambda: first, Store(tmp_path)).run(wanted, [64, 65536]))
    found = asyncio.run(Sweep(lambda: second, Store(tmp_path)).run(wanted, [64, 65536]))
    assert first.ran + second.ran == 8  # of 16 splits each
    assert found == [predict(SETTING, split, [64, 65536]) for split in splits(SETTING)]
    assert asyncio.run(Sweep(lambda: third, Store(tmp_path)).run(wanted, [64, 65536])) == found


def test_another_setting_is_predicted_anew(tmp_path):
    executor = Once(2)
    sweep = Sweep(lambda: executor, Store(tmp_path))
    [one] = asyncio.run(sweep.run([(SETTING, NOTHING)], [64]))
    [other] = asyncio.run(sweep.run([(replace(SETTING, host=with_crc(50)), NOTHING)], [64]))
    assert executor.ran == 2
    assert other.points[0].cycles != one.points[0].cycles


# --- the command


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path / "build"))
    (tmp_path / "device.toml").write_text(dump(DEVICE))
    return tmp_path


def rnic(files, *more):
    return run(["split", "--host", "cortex-a53", "--device", str(files / "device.toml"), *more])


def test_the_command_writes_the_same_figures_in_every_format(files, capsys):
    assert rnic(files, "--lanes", "2", "--csv", str(files / "a.csv"), "--json", "-") == 0
    plain = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(io.StringIO((files / "a.csv").read_text())))
    assert len(plain["splits"]) == 128
    assert len(rows) == 128 * len(SIZES)
    points = [point for split in plain["splits"] for point in split["points"]]
    assert [float(row["throughput_octets_per_s"]) for row in rows] == [p["throughput_octets_per_s"] for p in points]
    assert {len(each["source"]) > 0 for each in plain["figures"]} == {True}


def test_the_command_names_its_profiles_and_the_origin_of_figures(files, capsys):
    assert rnic(files, "--no-markers", "--link", "uart-3mbaud") == 0
    out = capsys.readouterr().out
    assert "CRCs" in out
    assert "UART, 3 Mbaud" in out
    assert f"figures of {files / 'device.toml'}" in out
    assert "The cost of markers and CRCs" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lanes", "16"], "--lanes must be one of 2, 4 for an invented device, not 16"),
        (["--device", "gw2a", "--lanes", "16"], "--lanes must be one of 1, 2, 4 for GW2A-18, not 16: "
                                                "rnic bench rtl --part gw2a --lanes 16 measures it"),
        (
            ["--link", "string"],
            "no link is called 'string': there are pcie-gen3-x16, pcie-gen3-x4, uart-3mbaud, or a file that ends in "
            ".toml",
        ),
        (["--link", "none.toml"], "none.toml: No such file or directory"),
        (["--wire", "0"], "--wire must be more than 0 Gb/s, not 0"),
        (["--emss", "20"], "--emss must be at least 142, not 20"),
        (["--crc-tier", "abacus"], "--crc-tier must be one of table, armv8, not abacus"),
        (["--measure"], "--measure measures this machine, not cortex-a53"),
    ],
)
def test_an_invalid_option_is_rejected_in_one_line(files, capsys, arguments, said):
    assert rnic(files, *arguments) == 2
    assert capsys.readouterr().err == f"rnic: {said}\n"


def test_a_saved_profile_is_unchanged(files, capsys):
    assert (
        rnic(files, "--lanes", "2", "--save-host", str(files / "h.toml"), "--save-device", str(files / "d.toml")) == 0
    )
    assert find(Host, str(files / "h.toml")) == HOST
    assert find(Device, str(files / "d.toml")) == DEVICE


def test_octets_cross_the_link_where_the_side_changes():
    sides = [side.value for side, _ in CRC.segments(Direction.RECEIVE)]
    assert sides == ["host", "device", "host"]


@pytest.mark.parametrize("options", [["--link", "string"], ["--device", "abacus"], ["--lanes", "3"],
                                     ["--crc-tier", "abacus"]])  # fmt: skip
def test_names_are_checked_before_this_machine_is_measured(options, monkeypatch, capsys):
    def measured(*_, **__):
        raise AssertionError("this machine is measured")

    monkeypatch.setattr(measure, "this_host", measured)
    assert run(["split", *options]) == 2
    assert options[1] in capsys.readouterr().err
