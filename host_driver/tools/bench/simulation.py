"""Run a measurement inside a simulation: a cocotb test that reads ``TASK`` and writes ``RESULT``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from open_rnic.host_driver.devices.sim.build import Simulation, environment

__all__ = ["MeasurementError", "report", "run", "stream_fields", "task"]

TASK, RESULT = "task.json", "result.json"  # in the folder in which the simulation runs


class MeasurementError(Exception):
    """A simulation failed; the message is its last error."""


def run(simulation: Simulation, module: str, what: Any, *, seconds: float) -> Any:
    """Run ``module`` on a task, and return its result, both plain data; raises MeasurementError, also for a timeout."""
    with TemporaryDirectory(prefix="rnic-bench-") as name:
        folder = Path(name)
        (folder / TASK).write_text(json.dumps(what))
        variables = environment(module) | {
            "COCOTB_RESULTS_FILE": str(folder / "results.xml"),
            "COCOTB_LOG_LEVEL": "WARNING",
            "RNIC_BENCH_STARTER": str(os.getpid()),
        }
        command = [sys.executable, "-m", "open_rnic.host_driver.tools.bench.child", *simulation.command()]
        try:
            done = subprocess.run(
                command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, check=False,
                start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"a simulation for {module} did not end within {seconds:.0f} s") from None
        if not (folder / RESULT).exists():
            lines = [line.strip() for line in done.stdout.splitlines() if "Error" in line]
            raise MeasurementError(f"{module}: {lines[-1] if lines else f'exit code {done.returncode}'}")
        return json.loads((folder / RESULT).read_text())


def stream_fields(path: Any) -> dict[str, dict[str, tuple[int, int]]]:
    """Return the fields of each packet stream of a data path: their least significant bits and widths."""
    return {
        name: {key: (field.offset, field.width) for key, field in getattr(path, name).payload.shape()}
        for name in ("tx_ulpdu", "tx_mpa", "rx_mpa", "rx_ulpdu")
    }


def task() -> Any:
    """Return the task; to be called inside the simulation."""
    return json.loads(Path(TASK).read_text())


def report(result: Any) -> None:
    """Write the result; to be called inside the simulation."""
    Path(RESULT).write_text(json.dumps(result))
