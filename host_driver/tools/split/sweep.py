"""Predict many splits. Each prediction is kept in a store, under a hash of everything that determines it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import fields, replace
from itertools import islice

from open_rnic.host_driver.tools.bench.rtl.jobs import expect, hash_of
from open_rnic.host_driver.tools.bench.rtl.store import Store, key
from open_rnic.host_driver.tools.split.model import SIZES, Prediction, Setting, predict
from open_rnic.host_driver.tools.split.profile import dump
from open_rnic.host_driver.tools.split.stages import Split

__all__ = ["Sweep", "sources"]

_BATCH = 16  # splits of one job
_SOURCES = ("host_driver.tools.split.model", "host_driver.tools.split.cycles", "host_driver.tools.split.stages",
            "host_driver.tools.split.profile", "host_driver.mpa.fpdu")  # fmt: skip


def sources() -> str:
    """Return a hash of the code that makes predictions."""
    return hash_of(_SOURCES, ())


def predict_all(setting: Setting, wanted: Sequence[Split], sizes: Sequence[int], read: str) -> list[Prediction]:
    """Predict some splits of one setting. ``read`` is the expected value of :func:`sources`. Runs on any machine."""
    expect(f"sources {sources()}", f"sources {read}")
    return [predict(setting, split, sizes) for split in wanted]


class Sweep:
    """Predict splits. ``executor`` is called when there are jobs to run; ``progress`` is called for each split."""

    def __init__(self, executor: Callable[[], Executor], store: Store, progress: Callable[[], None] = lambda: None):
        self._executor = executor
        self._store = store
        self._progress = progress

    async def run(self, wanted: Sequence[tuple[Setting, Split]], sizes: Sequence[int] = SIZES) -> list[Prediction]:
        """Return the predictions, in order; known predictions come from the store."""
        read = sources()
        settings = {id(setting): setting for setting, _ in wanted}
        descriptions = {which: _description(setting) for which, setting in settings.items()}
        names = [
            key("split", descriptions[id(setting)], sorted(split.device), list(sizes), read)
            for setting, split in wanted
        ]
        found: dict[str, Prediction] = {}
        missing: dict[int, list[tuple[str, Setting, Split]]] = {}
        for name, (setting, split) in zip(names, wanted, strict=True):
            kept = self._store.get(name)
            if isinstance(kept, Prediction):
                found[name] = kept
                self._progress()
            else:
                missing.setdefault(id(setting), []).append((name, setting, split))

        async def make(batch: list[tuple[str, Setting, Split]]) -> None:
            fresh = replace(batch[0][1])  # without its cache, which a job does not need
            splits = [split for _, _, split in batch]
            job = self._executor().submit(predict_all, fresh, splits, tuple(sizes), read)
            made = await asyncio.wrap_future(job)
            for (name, _, _), prediction in zip(batch, made, strict=True):
                self._store.put(name, prediction)
                found[name] = prediction
                self._progress()

        try:
            async with asyncio.TaskGroup() as group:
                for each in missing.values():
                    for batch in _batches(each):
                        group.create_task(make(batch))
        except ExceptionGroup as problems:  # all are of the same kind: report the first
            raise problems.exceptions[0] from None
        return [found[name] for name in names]


def _description(setting: Setting) -> list[object]:
    """Return everything that a setting holds, as text and plain data."""
    plain = {each.name: getattr(setting, each.name) for each in fields(setting)}
    profiles = [dump(plain.pop(name)) for name in ("host", "link", "device")]
    return [*profiles, *plain.items()]


def _batches(many: Iterable[tuple[str, Setting, Split]]) -> Iterator[list[tuple[str, Setting, Split]]]:
    rest = iter(many)
    while batch := list(islice(rest, _BATCH)):
        yield batch
