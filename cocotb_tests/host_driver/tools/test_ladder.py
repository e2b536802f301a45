"""The ladder's clock."""

import pytest

from open_rnic.host_driver.mpa.startup_frames import FrameKind, StartupFrame
from open_rnic.host_driver.observer import Direction, Frame, Opened
from open_rnic.host_driver.tools.cli import run
from open_rnic.host_driver.tools.ladder import Ladder
from open_rnic.rtl.registers import Role


def test_time_starts_at_the_first_startup_frame():
    times, lines = iter([1000.0, 1000.25]), []
    ladder = Ladder(lines.append, lambda: next(times))
    ladder.end(Role.INITIATOR)(Opened(("127.0.0.1", 1), ("127.0.0.1", 2)))
    ladder.end(Role.INITIATOR)(Frame(Direction.TX, StartupFrame(FrameKind.REQUEST)))
    ladder.end(Role.RESPONDER)(Frame(Direction.TX, StartupFrame(FrameKind.REPLY)))
    assert [step.seconds for step in ladder.steps] == [0, 0.25]
    assert lines[1].startswith("   0.0000  │─ MPA Request")


@pytest.mark.parametrize("markers", [[], ["--markers"]])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_ladder_is_as_narrow_as_the_terminal_and_loses_nothing(width, markers, monkeypatch, capsys):
    def ladder(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(["demo", "--device", "software", "--size", "1K", *markers]) == 0
        lines = capsys.readouterr().out.partition("\n\n")[2].partition("\n\n")[0].splitlines()
        assert max(map(len, lines)) <= columns
        return set(" ".join(lines[1:]).split())  # behind the ports

    def words(found):
        return {each for each in found if each.strip("─│◂▸●.0123456789")} - {"FPDU"}

    assert words(ladder(width)) == words(ladder(200))
