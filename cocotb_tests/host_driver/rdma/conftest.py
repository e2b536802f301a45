"""Runs the tests of connections over both data paths: DDP in software, and in the RDMA engine's twin; some over RTL."""

import inspect
from contextlib import nullcontext

import pytest

from open_rnic.cocotb_tests.harness.devices import leaving_nothing
from open_rnic.host_driver.devices.software import SoftwareDevice

MODULES = ("test_perftest", "test_rdma", "test_rdma_work", "test_rsocket")
OVER_MEMORY = ("test_rdma", "test_rdma_work")  # also over the twin of an engine with memory of its own
OVER_RTL = (  # these choose the simulated device if ``data_path`` is "rtl"
    "test_more_reads_than_the_ird_end_the_connection",
    "test_a_peer_that_closes_inside_a_message_is_an_error",
    "test_a_peer_that_closes_before_it_has_answered_a_read_is_an_error",
)

_OWN = 1 << 26  # octets


def pytest_generate_tests(metafunc):
    names = metafunc.fixturenames
    chosen = hasattr(metafunc.function, "hypothesis") or "device" in names or "lanes" in names
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in MODULES and not chosen:
        memory = ["memory"] if module in OVER_MEMORY else []
        rtl = ["rtl"] if metafunc.function.__name__ in OVER_RTL else []
        metafunc.parametrize("data_path", ["software", "engine", *memory, *rtl], indirect=True)


@pytest.fixture(autouse=True)
def data_path(request, monkeypatch):
    """Where the devices of a test that chooses none have their DDP: "memory" is an engine with memory of its own."""
    where = getattr(request, "param", "software")
    monkeypatch.setitem(SoftwareDevice.__init__.__kwdefaults__, "offload", where in ("engine", "memory"))
    monkeypatch.setitem(SoftwareDevice.__init__.__kwdefaults__, "octets", _OWN if where == "memory" else 0)
    return where


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """A connection leaves no memory registered, and no socket open."""
    with leaving_nothing() if inspect.iscoroutinefunction(request.function) else nullcontext():
        yield
