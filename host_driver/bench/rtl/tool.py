"""``python -m host_driver.bench.rtl.tool PACKAGE.FUNCTION ARGUMENTS`` runs a tool of YoWASP.

It ends with the process that started it, however that ends, so that no sweep leaves tools running.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib import import_module

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Run it; the exit status is the tool's."""
    starter = int(os.environ["RNIC_BENCH_STARTER"])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:  # it had ended before
            sys.exit(1)
    module, _, function = sys.argv.pop(1).rpartition(".")
    getattr(import_module(module), function)()


if __name__ == "__main__":
    main()
