"""``rnic bench``: it runs, and its figures are plausible. Speed is not judged here."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from open_rnic.cocotb_tests.plugins.system_packages import TAP, needs
from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import ProtectionDomain
from open_rnic.host_driver.tools.bench import connections
from open_rnic.host_driver.tools.bench.datapath import Case, measure
from open_rnic.host_driver.tools.bench.responder import held
from open_rnic.host_driver.tools.cli import run


def test_bench_host_reports_every_figure(capsys):
    assert run(["bench", "host", "--connections", "3", "--repeats", "1", "--size", "600", "--size", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    cases = [(cost["case"]["octets"], cost["case"]["markers"], cost["case"]["crc"]) for cost in figures["datapath"]]
    assert cases == [(size, markers, crc) for size in (600, 1) for markers in (True, False) for crc in (True, False)]
    for cost in figures["datapath"]:
        assert cost["fpdus"] == 1
        for way in ("tx", "rx"):
            assert cost[f"{way}_ratio"] == pytest.approx(cost[f"{way}_s"] / cost["reference_s"])
            assert cost[f"{way}_ratio_median"] > 0
    assert figures["rate"]["connections"] == figures["memory"]["connections"] == figures["many"]["connections"] == 3
    assert figures["rate"]["per_second"] > 0
    assert figures["memory"]["allocated_octets"] > 1000
    assert figures["many"]["left"] == {"tasks": 0, "sockets": 0, "processes": 0, "regions": 0}


def test_bench_host_shows_tables_without_json(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["bench", "host", "--connections", "1", "--repeats", "1", "--size", "64"]) == 0
    shown, progress = capsys.readouterr()
    assert progress.startswith("rnic: data path (4)\nrnic: connections opened (1)\n")
    for words in ("TX ratio", "a second", "KiB", "nothing", "of tasks, sockets, processes, regions"):
        assert words in shown


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--connections", "0"], "rnic: --connections must be at least 1, not 0\n"),
        (["--size", "64", "--size", "-1"], "rnic: --size must be at least 1, not -1\n"),
    ],
)
def test_an_invalid_option_of_bench_host_is_named(options, line, capsys):
    assert run(["bench", "host", *options]) == 2
    assert capsys.readouterr().err == line


def test_more_connections_than_open_files_are_rejected(capsys):
    assert run(["bench", "host", "--connections", "100000000", "--repeats", "1", "--size", "1"]) == 1
    assert "100000064 open files are needed, but the system permits" in capsys.readouterr().err


def test_a_message_is_segmented_to_the_mulpdu():
    assert measure(Case(65536, 8882, markers=True, crc=True), 1).fpdus == 8


def test_leaked_resources_are_counted():
    async def main() -> dict[str, int]:
        async with connections.responder(2) as other:
            before = await other.ask()
            connection = await rdma.connect("127.0.0.1", other.port)
            try:
                connections.SETTLED = 0.2
                return await connections._settled(other, before)
            finally:
                connections.SETTLED = 5.0
                await connection.close()

    left = asyncio.run(main())
    assert left["sockets"] == left["regions"] == 1
    assert left["tasks"] >= 4


def test_a_child_process_is_counted():
    async def main() -> list[int]:
        counts = [held(ProtectionDomain())["processes"]]
        with subprocess.Popen(["sleep", "60"]) as child:
            counts.append(held(ProtectionDomain())["processes"])
            child.kill()
        return [*counts, held(ProtectionDomain())["processes"]]

    before, during, after = asyncio.run(main())
    assert (during - before, after - before) == (1, 0)


@needs(TAP)
def test_bench_transport_compares_each_way_with_linux_and_itself(capsys):
    options = ["--octets", "50000", "--delay", "1", "--seeds", "2", "--congestion", "reno"]
    assert run(["bench", "transport", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pipe"] == {"rate": 20, "delay": 1, "queue": 50, "loss": 1, "seed": 1, "congestion": "reno"}
    ways = [("Linux", "Linux"), ("the twin", "Linux"), ("Linux", "the twin"), ("the twin", "the twin")]
    assert [tuple(each["way"]) for each in found["goodput"]] == ways
    reference = [each["seconds"] for each in found["goodput"][0]["transfers"]]
    for each in found["goodput"]:
        seconds = [transfer["seconds"] for transfer in each["transfers"]]
        assert each["ratios"] == [pytest.approx(theirs / ours) for theirs, ours in zip(reference, seconds, strict=True)]
        assert all(transfer["intact"] and transfer["octets"] == 50_000 for transfer in each["transfers"])


@needs(TAP)
def test_bench_transport_shows_a_table_without_json(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["bench", "transport", "--octets", "10000", "--delay", "0", "--loss", "0", "--seeds", "1"]) == 0
    shown = capsys.readouterr().out
    for words in ("10,000 octets", "the twin", "Medians of 1 seeds", "1.00 to 1.00"):
        assert words in shown


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--seeds", "0"], "rnic: --seeds must be at least 1, not 0\n"),
        (["--loss", "101"], "rnic: drop is a probability, from 0 to 1, not 1.01\n"),
        (["--rate", "0"], "rnic: rate is positive, not 0.0\n"),
    ],
)
def test_an_invalid_option_of_bench_transport_is_named(options, line, capsys):
    assert run(["bench", "transport", *options]) == 2
    assert capsys.readouterr().err == line


@needs(TAP)
def test_an_unknown_congestion_control_is_named(capsys):
    assert run(["bench", "transport", "--congestion", "none", "--octets", "1"]) == 1
    assert capsys.readouterr().err.endswith("rnic: this kernel has no congestion control 'none'\n")
