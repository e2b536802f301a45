"""Boards that the data path is built for: one module each, with a ``PLATFORM``."""

BOARDS = ("colorlight_5a75b",)
