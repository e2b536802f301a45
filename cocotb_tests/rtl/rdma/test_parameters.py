# amaranth: UnusedElaboratable=no
"""The engine refuses sizes that it cannot have, and has all others."""

import pytest
from amaranth.hdl import Fragment

from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.rtl.rdma.engine import RdmaEngine

LIMITS = {"regions": (2, 65536), "buffers": (2, 256), "work": (1, 128), "reads": (2, 128)}


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("lanes", widths(1, 2, 16))
def test_the_smallest_and_the_largest_engine_can_be_made(lanes, end):
    Fragment.get(RdmaEngine(lanes, **{name: limits[end] for name, limits in LIMITS.items()}), None)


@pytest.mark.parametrize("name", LIMITS)
def test_a_size_that_the_engine_cannot_have_is_refused(name):
    least, most = LIMITS[name]
    for size in (-1, 0, least // 2, 3, 2 * most):
        with pytest.raises(ValueError, match=f"^{name} must be a power of 2 from {least} to {most}, not {size}$"):
            RdmaEngine(1, **{name: size})
