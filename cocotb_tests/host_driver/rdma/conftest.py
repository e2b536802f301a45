"""Runs the tests of connections over both data paths: DDP in software, and in the RDMA engine's twin."""

import pytest

from open_rnic.host_driver.devices.software import SoftwareDevice

MODULES = ("test_rdma", "test_rdma_work")


def pytest_generate_tests(metafunc):
    names = metafunc.fixturenames
    chosen = hasattr(metafunc.function, "hypothesis") or "device" in names or "lanes" in names
    if metafunc.module.__name__.rpartition(".")[2] in MODULES and not chosen:
        metafunc.parametrize("data_path", ["software", "engine"], indirect=True)


@pytest.fixture(autouse=True)
def data_path(request, monkeypatch):
    """Where the devices of a test that chooses none have their DDP."""
    where = getattr(request, "param", "software")
    monkeypatch.setitem(SoftwareDevice.__init__.__kwdefaults__, "offload", where == "engine")
    return where
