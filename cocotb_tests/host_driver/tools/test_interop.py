"""``rnic interop linux`` without QEMU: errors, the relay, the guest's files, and the table."""

import asyncio
import json
import lzma
import random
import shutil
import socket
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from open_rnic.host_driver.mpa.startup_frames import NO_NEGOTIATION, EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.net.pipe import Faults
from open_rnic.host_driver.observer import Direction, Frame, Octets
from open_rnic.host_driver.rdma.perftest import Program, Settings
from open_rnic.host_driver.tools.cli import run as rnic
from open_rnic.host_driver.tools.interop import (
    case,
    initramfs,
    kernel,
    matrix,
    module,
    packages,
    prepare,
    report,
    tools,
)
from open_rnic.host_driver.tools.interop.cable import Plan
from open_rnic.host_driver.tools.interop.case import Case, Finding, Transfer, describe
from open_rnic.host_driver.tools.interop.cases import MATRIX, perftest, programs
from open_rnic.host_driver.tools.interop.errors import InteropError
from open_rnic.host_driver.tools.interop.matrix import Row, fitting, one_of_each
from open_rnic.host_driver.tools.interop.qemu import Output
from open_rnic.host_driver.tools.interop.relay import Treatment, relay
from open_rnic.rtl.registers import Rtr

REQUEST = StartupFrame(FrameKind.REQUEST).encode()
REPLY = StartupFrame(FrameKind.REPLY, private_data=b"reply").encode()


def one_line(capsys):
    """Return the output, which must be one line on standard error."""
    said = capsys.readouterr().err
    assert said.startswith("rnic: ")
    assert said.count("\n") == 1
    return said


# The command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "board"], "no device is called 'board'"),
        (["--case", "nothing"], "no case with 'nothing' in its name runs with software and simulated"),
        (
            ["--device", "udp:sim:ecpix5", "--case", "many"],
            "no case with 'many' in its name runs with udp:sim:ecpix5; --list names those that do, and --long",
        ),
        (["--drop", "0.1"], "--drop needs --transport qemu"),
        (["--transport", "qemu", "--drop", "1"], "--drop must be at least 0 and less than 1, not 1"),
        (["--case", "nothing", "--case", "more"], "'nothing' or 'more'"),
    ],
)
def test_a_wrong_option_is_rejected_in_one_line(capsys, arguments, said):
    assert rnic(["interop", "linux", *arguments]) == 2
    assert said in one_line(capsys)


def test_cases_can_be_listed_without_running_them(capsys):
    assert rnic(["interop", "linux", "--list", "--case", "rping"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [each.name for each in MATRIX if "rping" in each.name]


# The choice of one case of each kind

WORDS = ({"to-guest", "asked"}, {"from-guest", "replied"})  # the ends of names that give our role


def fits():
    """Return the cases of each device, as a run without options has them."""
    board = "udp:sim:colorlight_5a75b:4"
    rtl = Plan(Faults(), rtl=True)
    return {"software": fitting(MATRIX, "software"), "simulated": fitting(MATRIX, "simulated")} | {
        board: fitting(MATRIX, board, rtl)
    }


def test_each_kind_is_chosen_once_for_each_device():
    fit = fits()
    chosen = one_of_each(fit)
    assert list(chosen) == list(fit)
    for device, cases in chosen.items():
        kinds = [each.kind for each in cases]
        assert len(set(kinds)) == len(kinds)
        assert set(kinds) == {each.kind for each in fit[device]}
        assert cases == [each for each in fit[device] if each in cases]


def test_all_cases_of_a_kind_have_one_role():
    ends = {}
    for each in MATRIX:
        roles = {nth for nth, words in enumerate(WORDS) if each.name.endswith(tuple(words))}
        ends.setdefault(each.kind, set()).update(roles)
    assert all(len(roles) <= 1 for roles in ends.values())
    assert sum(map(len, ends.values())) > 20


def test_devices_take_turns_with_the_cases_of_a_kind():
    cases = [Case(f"{nth}-to-guest", "", "", partial(act, setting=nth)) for nth in range(3)]
    alone = Case("alone", "", "", partial(case.nudge, seen=None))
    chosen = one_of_each({device: [*cases, alone] for device in "abcd"})
    assert [[each.name[:1] for each in some] for some in chosen.values()] == [[nth, "a"] for nth in "0120"]


@pytest.mark.parametrize(
    ("option", "said"),
    [([], "2 rows\n"), (["--one-of-each"], "1 rows, one of each kind; 1 left to make interop\n")],
)
def test_a_run_says_how_many_rows_it_leaves_out(monkeypatch, capsys, tmp_path, option, said):
    async def prepared(folder):
        return None, SimpleNamespace(release="6.1", version="6.1-1")

    async def no_rows(*_, **__):
        for each in ():
            yield each

    monkeypatch.setattr(prepare, "prepare", prepared)
    monkeypatch.setattr(matrix, "run", no_rows)
    options = ["--device", "software", "--case", "rtr-write-to", "--case", "rtr-read-to", *option]
    assert rnic(["interop", "linux", "--folder", str(tmp_path), *options]) == 0
    assert f"Linux 6.1 (6.1-1) with siw, {said}" in capsys.readouterr().out


@pytest.mark.parametrize("option", [[], ["--shell"]])
def test_a_missing_program_is_reported_with_its_package(monkeypatch, capsys, tmp_path, option):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if "qemu" in name else which("sh"))
    monkeypatch.setattr(tools, "is_root", lambda: False)
    assert rnic(["interop", "linux", "--folder", str(tmp_path), *option]) == 1
    assert "qemu-system-x86_64: not installed; as root, run apt-get install qemu-system-x86" in one_line(capsys)


def test_root_without_a_network_gets_the_missing_packages_and_the_reason(monkeypatch, capsys, tmp_path):
    async def no_network(command, **_):
        raise InteropError("apt-get update failed with status 100: could not connect")

    monkeypatch.setattr(shutil, "which", lambda name: None if "qemu" in name else "/bin/true")
    monkeypatch.setattr(tools, "is_root", lambda: True)
    monkeypatch.setattr(tools, "run", no_network)
    assert rnic(["interop", "linux", "--folder", str(tmp_path)]) == 1
    said = one_line(capsys)
    assert "qemu-system-x86_64: not installed" in said
    assert "could not connect" in said


def test_a_system_other_than_debian_is_reported_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "apt-get" else "/bin/true")
    assert rnic(["interop", "linux", "--folder", str(tmp_path)]) == 1
    assert "apt-get is missing" in one_line(capsys)


def test_packages_that_cannot_be_downloaded_are_reported_in_one_line(monkeypatch, capsys, tmp_path):
    async def no_network(command, **_):
        raise InteropError("apt-get download failed with status 100: could not connect")

    monkeypatch.setattr(shutil, "which", lambda name: "/bin/true")
    monkeypatch.setattr(packages, "run", no_network)
    monkeypatch.setattr(packages, "is_root", lambda: False)
    assert rnic(["interop", "linux", "--folder", str(tmp_path)]) == 1
    assert "apt does not know linux-image-amd64" in one_line(capsys)


def test_case_names_are_unique_and_valid_in_file_names():
    names = [each.name for each in MATRIX]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and "/" not in name and " " not in name for name in names)
    assert {each.variant for each in MATRIX} <= set(module.VARIANTS)


# Other programs


def test_a_program_that_fails_or_hangs_is_reported_and_ended():
    with pytest.raises(InteropError, match="sh failed with status 3: why"):
        asyncio.run(tools.run(["sh", "-c", "echo why >&2; exit 3"]))
    with pytest.raises(InteropError, match=r"sh did not end within 0\.2 s"):
        asyncio.run(tools.run(["sh", "-c", "sleep 60 & sleep 60"], timeout=0.2))
    with pytest.raises(InteropError, match="no-such-program"):
        asyncio.run(tools.run(["no-such-program"]))


# Packages


def test_packages_of_an_earlier_run_are_used_without_a_network(monkeypatch, tmp_path):
    files = ["linux-image-6.1.0-9-amd64_6.1.99-1_amd64.deb", "linux-source-6.1_6.1.99-1_all.deb"]
    for name in files:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "packages.json").write_text(json.dumps({"release": "6.1.0-9-amd64", "files": files}))

    async def no_network(command, **_):
        raise InteropError("no network")

    monkeypatch.setattr(packages, "run", no_network)
    found = asyncio.run(packages.fetch(tmp_path))
    assert (found.release, found.version, found.series) == ("6.1.0-9-amd64", "6.1.99-1", "6.1")
    assert [file.name for file in found.unpacked] == files[:1]
    (tmp_path / files[0]).unlink()
    with pytest.raises(InteropError, match="no network"):
        asyncio.run(packages.fetch(tmp_path))


def test_only_missing_or_incomplete_packages_are_downloaded(monkeypatch, tmp_path):
    commands = []

    async def apt(command, *, folder=None, **_):
        commands.append(command)
        if command[:2] == ["apt-cache", "depends"]:
            return f"{command[2]}\n  Depends: linux-image-6.1.0-9-amd64\n  Depends: libpython3.11\n"
        names = [word for word in command[2:] if not word.startswith("-")]
        if "--print-uris" in command:
            return "".join(f"'scheme:{name}' {name}_1_amd64.deb 3 SHA256:0\n" for name in names)
        for name in names:
            (folder / f"{name}_1_amd64.deb").write_bytes(b"deb")
        return ""

    monkeypatch.setattr(packages, "run", apt)
    (tmp_path / "libc6_1_amd64.deb").write_bytes(b"deb")
    (tmp_path / "rdmacm-utils_1_amd64.deb").write_bytes(b"d")  # an incomplete download
    found = asyncio.run(packages.fetch(tmp_path))
    assert found.release == "6.1.0-9-amd64"
    assert "rdmacm-utils" in commands[-1]
    assert "libc6" not in commands[-1]
    asyncio.run(packages.fetch(tmp_path))
    assert "--print-uris" in commands[-1]


# The guest's files


def test_modules_are_loaded_after_their_dependencies(tmp_path):
    needs = {"siw": "ib_core,libcrc32c", "ib_core": "", "libcrc32c": "crc-base", "crc_base": "built_in"}
    folder = tmp_path / "lib/modules/6.1.0-9-amd64/kernel"
    folder.mkdir(parents=True)
    for name, others in needs.items():
        octets = b"ELF\0license=GPL\0depends=" + others.encode() + b"\0name=x\0"
        file = folder / f"{name}.ko"
        if name == "ib_core":
            file.with_suffix(".ko.xz").write_bytes(lzma.compress(octets))
        else:
            file.write_bytes(octets)
    order = [file.name.split(".")[0] for file in module.in_order(tmp_path, ["siw"])]
    assert order == ["ib_core", "crc_base", "libcrc32c", "siw"]


def test_a_variant_is_the_driver_with_other_constants(tmp_path):
    file = tmp_path / "siw_main.c"
    file.write_text("const bool peer_to_peer;\nu_char mpa_version = MPA_REVISION_2;\nint main;\n")
    module._patch(file, {"peer_to_peer": "true", "mpa_version": "MPA_REVISION_1"})
    assert file.read_text() == "const bool peer_to_peer = true;\nu_char mpa_version = MPA_REVISION_1;\nint main;\n"
    with pytest.raises(InteropError, match="does not define the constant mpa_crc_required"):
        module._patch(file, {"mpa_crc_required": "true"})


def test_the_kernel_of_a_boot_file_is_decompressed():
    elf = b"\x7fELF" + bytes(range(200))
    payload = lzma.compress(elf)
    head = bytearray(512 * 3)
    head[0x1F1], head[0x202:0x206] = 1, b"HdrS"
    head[0x248:0x250] = struct.pack("<II", 512, len(payload) + 4)
    boot = bytes(head) + payload + struct.pack("<I", len(elf)) + bytes(99)
    assert kernel.uncompressed(boot) == elf
    other = boot.replace(payload, payload[::-1])
    assert kernel.uncompressed(other) == other
    assert kernel.uncompressed(elf) == elf


def test_the_archive_has_every_file_and_the_folders_around_it():
    files = {"init": b"#!sh\n", "usr/bin/peer": bytes(range(256)), "etc/empty": b""}
    members, archive = {}, initramfs.archive(files)
    while True:
        assert archive[:6] == b"070701"
        mode, size, length = (int(archive[at : at + 8], 16) for at in (14, 54, 94))
        name = archive[110 : 110 + length - 1].decode()
        body = 110 + length + -(110 + length) % 4
        if name == "TRAILER!!!":
            break
        members[name] = mode, archive[body : body + size]
        archive = archive[body + size + -size % 4 :]
    assert {name: octets for name, (mode, octets) in members.items() if mode & 0o100000} == files
    folders = [name for name, (mode, _) in members.items() if mode & 0o40000]
    assert set(folders) == {"usr", "usr/bin", "etc", "dev", "proc", "sys"}
    assert folders.index("usr") < folders.index("usr/bin")


def test_a_file_that_is_in_no_package_is_named(tmp_path):
    peer = tmp_path / "peer"
    peer.write_bytes(b"")
    with pytest.raises(InteropError, match="no package contains bin/busybox"):
        initramfs.collect(tmp_path, {}, [], peer)


def test_the_output_of_a_command_can_be_retrieved():
    output = Output("\nrequest: ird 1 \n\nended: well\n", 0)
    assert output.lines == ["request: ird 1", "ended: well"]
    assert output.value("request:") == "ird 1"
    assert output.value("reply:") is None


# The relay


async def through(forth=None, back=None, *, sent, answered=b""):
    """Return the pieces that the responder and the initiator received, with their times."""
    loop = asyncio.get_running_loop()
    arrived = [], []

    async def collect(reader, pieces):
        while octets := await reader.read(1 << 20):
            pieces.append((octets, loop.time()))

    async def respond(reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = await reader.readexactly(len(REQUEST))
        assert first == REQUEST
        writer.write(REPLY)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(answered)
        writer.write_eof()
        await collect(reader, arrived[0])
        writer.close()
        done.set()

    done = asyncio.Event()
    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with relay(port, forth, back) as relayed:
            reader, writer = await asyncio.open_connection("127.0.0.1", relayed)
            writer.write(REQUEST)
            assert await reader.readexactly(len(REPLY)) == REPLY
            for octets in sent:
                writer.write(octets)
                await asyncio.sleep(0.001)
            writer.write_eof()
            await collect(reader, arrived[1])
            await done.wait()
            writer.close()
    return arrived


def joined(pieces):
    return b"".join(octets for octets, _ in pieces)


@pytest.mark.parametrize("treatment", [Treatment(), Treatment(cut=7), Treatment(cut=40, step=4), Treatment(join=900)])
async def test_a_relay_alters_no_octet(treatment):
    sent, answered = [random.randbytes(n) for n in (1, 500, 40, 3000)], random.randbytes(5000)
    there, back = await through(treatment, treatment, sent=sent, answered=answered)
    assert joined(there) == b"".join(sent)
    assert joined(back) == answered


async def test_a_relay_joins_small_pieces(monkeypatch):
    monkeypatch.setattr("open_rnic.host_driver.tools.interop.relay.HELD", 5.0)  # long enough for a busy machine
    there, _ = await through(treatment := Treatment(join=1000), sent=[b"x" * 10] * 100)
    assert len(there[0][0]) >= 1000
    assert treatment.joins == 1


def test_pieces_are_multiples_of_the_step_and_limited():
    treatment = Treatment(cut=97, step=4)
    pieces = list(treatment.pieces(bytes(10000), random.Random(1)))
    assert treatment.cuts == len(pieces) - 1
    assert sum(map(len, pieces)) == 10000
    assert all(len(piece) % 4 == 0 and len(piece) <= 97 for piece in pieces)
    assert len({len(piece) for piece in pieces}) > 10


async def test_a_relay_inverts_the_requested_bit():
    sent = [bytes(60), bytes(60)]
    there, _ = await through(Treatment(corrupt=75), sent=sent)
    octets = joined(there)
    assert [at for at, octet in enumerate(octets) if octet] == [75]
    assert octets[75].bit_count() == 1


async def test_a_relay_can_pause_within_a_stream(monkeypatch):
    monkeypatch.setattr("open_rnic.host_driver.tools.interop.relay.PAUSE", 1.0)
    there, _ = await through(Treatment(pause=58), sent=[bytes(100)])
    assert len(there[0][0]) == 58
    assert there[1][1] - there[0][1] > 0.5
    assert len(joined(there)) == 100


# The table


async def act(setting):
    raise NotImplementedError


def row(device="software", *, wrong=(), departs="", seconds=2.0):
    tried = Case("a-case", "what is tried", "what | must be", act)
    transfer = Transfer(1000, seconds, {"guest": seconds / 2, "host driver": seconds / 4})
    finding = None if wrong else Finding("siw did this", "we did that", departs)
    commands = [("peer listen 7174", "listening\nrequest: ird 1\n")]
    judged, capture = "3 FPDUs, 3 good CRCs", Path("a-case.pcapng")
    return Row(tried, device, finding, list(wrong), judged, transfer, 1.0, capture, commands)


def test_the_slowest_stage_is_the_busiest_one():
    assert report.rate(row()) == "1,000 octets at 500 octets/s, slowest: guest 50%"
    waiting = Transfer(1000, 2.0, {"guest": 0.5, "host driver": 0.2})
    assert waiting.slowest == "round trips (busiest: guest 25%)"
    assert report.rate(row(seconds=0.01)) == ""  # too short for the resolution of processor time


def test_a_row_reports_errors_and_departures():
    assert row().verdict == "pass"
    assert row(departs="a rule").verdict == "pass, siw departs"
    assert any("departs   a rule" in line for line in report.details(row(departs="a rule")))
    failed = row(wrong=["this", "that"], departs="a rule")
    assert failed.verdict == "FAIL"
    assert [line.split()[-1] for line in report.details(failed) if "WRONG" in line] == ["this", "that"]
    assert report.details(failed)[-1] == "    guest     peer listen 7174: listening request: ird 1"


def test_the_summary_counts_rows_and_cases():
    rows = [row(departs="a rule"), row("simulated", departs="a rule"), row("simulated", wrong=["this"])]
    assert report.summary(rows, 61.4) == "3 rows, 1 FAILED, siw departs from a standard in 1 cases; 61 s"
    assert "all passed" in report.summary(rows[:2], 1)


def test_the_documented_table_has_a_line_for_each_case():
    lines = report.table([row(), row("simulated", departs="a rule")], "Title").markdown().splitlines()
    assert lines[:2] == ["**Title**", ""]
    assert len(lines) == 5
    assert len({line.replace("\\|", "").count("|") for line in lines[2:]}) == 1
    assert "| siw did this | we did that | software: pass; simulated: pass, siw departs. a rule |" in lines[4]
    assert "what \\| must be" in lines[4]


def test_differences_between_devices_are_reported_for_each():
    other = row("simulated")
    other.finding = Finding("siw did that", "we did that")
    line = report.table([row(), other], "Title").markdown().splitlines()[4]
    assert "| software: siw did this; simulated: siw did that | we did that | pass |" in line


@pytest.mark.parametrize("text", [None, "# A page without a place for it", "<!-- rnic interop linux -->"])
def test_a_page_without_a_place_for_the_table_is_reported_before_the_run(monkeypatch, capsys, tmp_path, text):
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    monkeypatch.setattr(prepare, "prepare", None)
    assert rnic(["interop", "linux", "--markdown", str(page)]) == 1
    assert str(page) in one_line(capsys)
    assert not page.exists() or page.read_text() == text


@pytest.mark.parametrize(
    ("asked", "row", "good"),
    [
        (65536, "65536 24 18.34 13.02 0.000208", True),
        (65536, "65536 24 18.34 0.00 0.000208", False),
        (65536, "65536 24 18.34 inf 0.000208", False),
        (64, "64 24 0.00 0.00 0.000003", True),
        (64, "64 24 0.00 0.00 0.000000", True),
        (64, "64 24 0.01 nan 0.000003", False),
        (64, "128 24 0.01 0.01 0.000003", False),
    ],
)
def test_the_row_of_perftest_has_rates_of_the_asked_messages(asked, row, good):
    settings = Settings.of(Program.WRITE_BW, size=asked, iterations=24)
    output = Output(f"#bytes #iterations\n{row}\n", 0)
    values = [float(value) for value in row.split()]
    if good:
        assert perftest._table(output, settings) == values
    else:
        with pytest.raises(case.Mismatch, match=f"the row .{values[0]}"):
            perftest._table(output, settings)


def test_an_unexpected_error_reports_its_origin():
    assert matrix._line(case.Mismatch("this")) == "Mismatch: this"
    with pytest.raises(IndexError) as caught:
        [][0]
    assert "IndexError: list index out of range (test_interop.py:" in matrix._line(caught.value)


async def test_earlier_captures_of_other_rows_are_kept(monkeypatch, tmp_path):
    async def no_device(name, lanes, offload):
        raise InteropError("no device")

    monkeypatch.setattr(matrix, "open_device", no_device)
    names = ["a-case-software.pcapng", "aligned/a-case-software.pcapng", "a-case-simulated.pcapng", "sub/mine.pcapng"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InteropError):
        async for _ in matrix.run(None, tmp_path, {"software": [row().case]}):
            pass
    assert [name for name in names if (tmp_path / name).exists()] == names[2:]


@pytest.mark.parametrize(("cuts", "runs", "passes"), [(0, 1, True), (2, 3, True), (9, matrix.TRIES, False)])
async def test_a_row_runs_again_only_if_the_network_cut_a_crc(monkeypatch, tmp_path, cuts, runs, passes):
    class NoDevice:
        async def close(self):
            pass

    async def no_device(name, lanes, offload=None):
        return NoDevice()

    tries = []

    async def one_row(*_):
        tries.append(len(tries) < cuts)
        return replace(row(), wrong=["cut"] if tries[-1] else [], split=tries[-1])

    monkeypatch.setattr(matrix, "open_device", no_device)
    monkeypatch.setattr(matrix, "_row", one_row)
    rows = [each async for each in matrix.run(None, tmp_path, {"software": [row().case]})]
    assert [each.passed for each in rows] == [passes]
    assert len(tries) == runs


def test_the_window_of_a_guest_in_the_network_of_qemu_ends_between_words():
    assert initramfs.WINDOW % 4 == 0
    assert initramfs.WINDOW < 1 << 16
    assert f"echo '4096 {2 * initramfs.WINDOW} {2 * initramfs.WINDOW}' >/proc/sys/net/ipv4/tcp_rmem" in initramfs.INIT


def test_startup_frames_are_described_briefly():
    data = EnhancedData(ird=NO_NEGOTIATION, ord=2, peer_to_peer=True, rtr=frozenset({Rtr.WRITE}))
    frame = StartupFrame(FrameKind.REPLY, markers=True, enhanced=data, private_data=b"x")
    assert describe(frame) == "Reply Rev 2, M=1 C=1 S=1, A=1 Write RTR, IRD 0x3FFF ORD 2, 1 octets of private data"


# Other functions of a case


class Deaf:
    """A connection whose peer does not react before the third FPDU."""

    def __init__(self, seen):
        self.seen, self.error, self.written = seen, None, 0
        seen(Octets(Direction.TX, bytes(20)))

    async def write(self, octets, stag):
        assert (octets, stag) == (b"", case.NUDGE_STAG)
        self.written += 1
        self.seen.heard = self.written == 3


async def test_a_silent_peer_is_nudged_until_it_answers(monkeypatch):
    monkeypatch.setattr(case, "NUDGE", 0.001)
    connection = Deaf(seen := case.Seen())
    await case.nudge(connection, seen)
    assert (connection.written, seen.nudges) == (3, 3)
    await case.nudge(connection, seen)
    seen.heard, connection.error = False, "over"
    await case.nudge(connection, seen)
    assert connection.written == 3


async def test_the_time_before_the_ulp_begins_is_no_silence(monkeypatch):
    monkeypatch.setattr(case, "NUDGE", 0.05)
    connection = Deaf(seen := case.Seen())
    seen.last -= 3600
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(case.nudge(connection, seen), 0.03)
    assert connection.written == 0


async def test_a_peer_that_was_sent_nothing_is_not_nudged(monkeypatch):
    monkeypatch.setattr(case, "NUDGE", 0.001)
    connection = Deaf(seen := case.Seen())
    seen.fpdus = 0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(case.nudge(connection, seen), 0.05)
    assert connection.written == 0


def test_the_events_of_a_connection_are_counted():
    seen, reply = case.Seen(), StartupFrame(FrameKind.REPLY)
    seen(Octets(Direction.TX, REQUEST))
    seen(Octets(Direction.TX, bytes(20)))
    seen(Octets(Direction.RX, reply.encode()[:5]))
    seen(Frame(Direction.RX, reply))
    seen(Octets(Direction.RX, reply.encode()[5:]))
    assert (seen.fpdus, seen.heard) == (1, False)
    assert seen.whole
    seen(Octets(Direction.RX, b"\0"))
    assert seen.heard
    assert (seen.octets_out, seen.octets_in) == (20, len(reply.encode()) + 1)


@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_a_stream_that_ends_behind_an_fpdu_is_recognised(size):
    frame = StartupFrame(FrameKind.REPLY, private_data=b"abc").encode()
    stream, ends = frame + bytes(8) + b"\0\5" + bytes(10) + b"\0\2" + bytes(6), []
    seen = case.Seen()
    for at in range(0, len(stream), size):
        seen(Octets(Direction.RX, stream[at : at + size]))
        if seen.whole:
            ends.append(seen.octets_in)
    whole = [len(frame), len(frame) + 8, len(frame) + 20, len(frame) + 28]
    assert ends == [end for end in whole if end % size == 0 or end == len(stream)]


def test_a_program_that_received_other_data_has_failed():
    programs.ended(Output("", 0))
    programs.ended(Output(programs._RACE, 255))
    for output in (Output("", 1), Output(f"data mismatch!\n{programs._RACE}", 255), Output("data mismatch!", 0)):
        with pytest.raises(case.Mismatch):
            programs.ended(output)


@pytest.mark.parametrize("options", [["--device", "simulated"], ["--device", "software", "--transport", "qemu-rtl"]])
def test_a_missing_compiler_is_named_before_anything_is_fetched(options, monkeypatch, tmp_path, capsys):
    async def fetched(folder):
        raise AssertionError("packages are fetched")

    monkeypatch.setattr(prepare, "prepare", fetched)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert rnic(["interop", "linux", "--folder", str(tmp_path), *options]) == 1
    assert one_line(capsys) == "rnic: c++ is missing, which simulation needs: install the Debian package g++\n"
