"""Blocks without automatic garbage collection."""

import gc
import weakref

import pytest

from open_rnic.host_driver.lib.garbage import not_collected


class _Cycle:
    def __init__(self):
        self.itself = self


def test_a_cycle_is_kept_until_the_youngest_objects_are_collected():
    with not_collected():
        kept = weakref.ref(_Cycle())
        others = [[] for _ in range(200_000)]
        assert kept() is not None
        gc.collect(0)
        assert kept() is None
    assert len(others) == 200_000


@pytest.mark.parametrize("collects", [True, False])
def test_a_block_leaves_automatic_collection_as_it_was(collects):
    (gc.enable if collects else gc.disable)()
    try:
        with not_collected():
            assert not gc.isenabled()
        assert gc.isenabled() == collects
    finally:
        gc.enable()
