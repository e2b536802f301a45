"""The ladder's clock."""

from open_rnic.host_driver.connection import Direction
from open_rnic.host_driver.mpa.startup import FrameKind, StartupFrame
from open_rnic.host_driver.tools.ladder import Ladder
from open_rnic.rtl.registers import Role


def test_time_starts_at_the_first_startup_frame():
    times, lines = iter([1000.0, 1000.25]), []
    ladder = Ladder(lines.append, lambda: next(times))
    ladder.end(Role.INITIATOR).opened(("127.0.0.1", 1), ("127.0.0.1", 2))
    ladder.end(Role.INITIATOR).frame(Direction.TX, StartupFrame(FrameKind.REQUEST))
    ladder.end(Role.RESPONDER).frame(Direction.TX, StartupFrame(FrameKind.REPLY))
    assert [step.seconds for step in ladder.steps] == [0, 0.25]
    assert lines[1].startswith("   0.0000  │─ MPA Request")
