"""``python -m open_rnic.cocotb_tests.coverage``."""

import sys

from open_rnic.cocotb_tests.coverage import main

sys.exit(main())
