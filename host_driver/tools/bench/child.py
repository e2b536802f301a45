"""``python -m open_rnic.host_driver.tools.bench.child PROGRAM ARGUMENTS`` runs a program that ends with its parent.

So nothing goes on running when a benchmark ends, however that ends. PROGRAM is a path, or of a tool of YoWASP the
Python function that it is: ``package:function``. The environment's RNIC_BENCH_STARTER is the starter's process id.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib import import_module

_PR_SET_PDEATHSIG = 1  # prctl(2): it stays across execve


def main() -> None:
    """Run it; the exit status is its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(os.environ["RNIC_BENCH_STARTER"]):  # which has ended already
            sys.exit(1)
    program = sys.argv.pop(1)
    package, _, function = program.rpartition(":")
    if not package:
        os.execv(program, [program, *sys.argv[1:]])
    getattr(import_module(package), function)()


if __name__ == "__main__":
    main()
