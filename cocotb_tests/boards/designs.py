"""Designs of boards that several tests look at; each is elaborated once."""

from functools import cache

from open_rnic.boards import find
from open_rnic.boards.board import Core
from open_rnic.boards.build import NAME, plan, top


@cache
def whole(name: str, connections: int) -> dict[str, str]:
    """Return the files, by name, from which the tools make a board's whole RNIC with so many connections."""
    board = find(name)
    board = board.sized(connections)
    files = plan(board, top(board, Core.RNIC, 1, None)).files
    return {
        file: files[file] if isinstance(files[file], str) else files[file].decode()
        for file in (f"{NAME}.il", f"{NAME}.lpf")
    }
