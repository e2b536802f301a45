"""``python -m open_rnic.host_driver.tools.bench.child PROGRAM ARGUMENTS`` runs a program that ends with its parent.

No program therefore outlives a benchmark, even if the benchmark is killed. PROGRAM is a path or, for a tool of YoWASP,
the Python function that implements it: ``package:function``. The environment variable RNIC_BENCH_STARTER holds the
parent's process id.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib import import_module

_PR_SET_PDEATHSIG = 1  # prctl(2); the setting survives execve


def main() -> None:
    """Run the program, and exit with its exit status."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(os.environ["RNIC_BENCH_STARTER"]):  # the parent has already ended
            sys.exit(1)
    program = sys.argv.pop(1)
    package, _, function = program.rpartition(":")
    if not package:
        os.execv(program, [program, *sys.argv[1:]])
    getattr(import_module(package), function)()


if __name__ == "__main__":
    main()
