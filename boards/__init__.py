"""Boards that the data path is built for: one module each, with a ``PLATFORM`` and the ``LANES`` that fit it."""

BOARDS = ("colorlight_5a75b",)
