"""``rnic man``: manual pages of all commands, made from what ``--help`` shows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from open_rnic.host_driver.tools.cli.common import whole_file
from open_rnic.host_driver.tools.cli.help import commands_by_purpose, parameters


def man(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder to write to, such as ~/.local/share/man/man1.")
    ],
) -> None:
    """Write a manual page for each command, for the program man."""
    from open_rnic.host_driver.tools.cli import commands

    folder.mkdir(parents=True, exist_ok=True)
    for words, text in pages(commands()):
        with whole_file(folder / f"{'-'.join(words)}.1") as file:
            file.write(text)


def pages(program: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the words of each command, ``rnic`` first, and its page in the macros of man(7)."""
    yield from _pages(program, None, ("rnic",), ())


def _pages(
    command: Any, parent: Any, words: tuple[str, ...], related: tuple[tuple[str, ...], ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    context = command.make_context(words[-1], [], parent=parent, resilient_parsing=True)
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    below = tuple((*words, name) for name in names)
    yield words, _page(command, context, words, (*related, *below))
    for name, each in zip(names, below, strict=True):
        yield from _pages(command.get_command(context, name), context, each, (*related, words))


def _page(command: Any, context: Any, words: tuple[str, ...], related: tuple[tuple[str, ...], ...]) -> str:
    from importlib.metadata import version

    sentence, *paragraphs = (command.help or "").split("\n\n")
    name, program = "-".join(words), " ".join(words)
    lines = [
        f'.TH "{_plain(name.upper())}" 1 "{date.today()}" "Open RNIC {version("open-rnic")}" "Open RNIC"',
        ".SH NAME", f"{_plain(name)} \\- {_plain(sentence.rstrip('.'))}",
        ".SH SYNOPSIS", f".B {_plain(program)}", _plain(" ".join(command.collect_usage_pieces(context))),
    ]  # fmt: skip
    if paragraphs:
        lines.append(".SH DESCRIPTION")
    for nth, paragraph in enumerate(paragraphs):
        lines += [".PP"] * (nth > 0) + [_plain(paragraph)]
    if hasattr(command, "list_commands"):
        lines.append(".SH COMMANDS")
        for purpose, rows in commands_by_purpose(command, context).items():
            lines += [f".SS {purpose}"] * (purpose != "Commands") + _listed(rows)
    for title, rows in parameters(command, context).items():
        lines += [f".SH {title.upper()}", *_listed(rows)]
    if related:
        lines.append(".SH SEE ALSO")
        lines += [f'.BR {_plain("-".join(each))} (1){"," * (each is not related[-1])}' for each in related]
    return "\n".join(lines) + "\n"


def _listed(rows: list[tuple[str, str]]) -> list[str]:
    return [line for name, text in rows for line in (".TP", f".B {_plain(name)}", _plain(text))]


def _plain(text: str) -> str:
    """Return text that roff shows as it is: it begins no request, and its hyphens are those of a shell."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
