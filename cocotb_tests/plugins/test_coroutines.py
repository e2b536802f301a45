"""Tests that are coroutines."""

import asyncio

import pytest

from open_rnic.cocotb_tests.plugins.coroutines import run


@pytest.mark.parametrize("number", [1])
async def test_a_coroutine_runs_with_its_fixtures_and_parameters(tmp_path, number):
    await asyncio.sleep(0)
    assert tmp_path.is_dir()
    assert number == 1


def test_a_task_that_is_left_is_an_error_that_names_it():
    async def leave():
        asyncio.create_task(asyncio.sleep(60), name="forgotten")  # noqa: RUF006

    with pytest.raises(AssertionError, match="forgotten"):
        run(leave())


def test_a_hang_is_an_error():
    with pytest.raises(TimeoutError):
        run(asyncio.Event().wait(), 0.01)
