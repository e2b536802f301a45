"""Help in plain text: in a narrow terminal, too, no name is cut, and lines break between words only."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["WIDTH", "Command", "Commands", "commands_by_purpose", "parameters"]

WIDTH = 100  # columns, at most
_COLUMN = 28  # columns of a name that has its text beside it
_INDENT = 2
_TIED = "\N{NO-BREAK SPACE}"


class Command(TyperCommand):
    """A command whose help lists its arguments and options."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line behind the command."""
        pieces = ["[OPTIONS]"]
        for each in self.get_params(ctx):
            if each.param_type_name == "argument":
                name = _name(each) + ("..." if each.nargs < 0 else "")
                pieces.append(name if each.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options."""
        _write_options(self, ctx, formatter)


class Commands(TyperGroup):
    """A group whose help lists its commands by what they are for, the names of their ``rich_help_panel``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help if there are no arguments; Typer's own way would make an error of one line of it."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(2)
        words: list[str] = super().parse_args(ctx, args)
        return words

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, then the options."""
        for title, rows in commands_by_purpose(self, ctx).items():
            with formatter.section(title):
                _write(formatter, rows)
        _write_options(self, ctx, formatter)


def commands_by_purpose(group: TyperGroup, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the commands of a group, each with a sentence, under the names of their ``rich_help_panel``."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in group.list_commands(ctx):
        command: Any = group.get_command(ctx, name)
        sentence = command.get_short_help_str(10_000)
        groups.setdefault(command.rich_help_panel or "Commands", []).append((name, sentence))
    return groups


def parameters(command: TyperCommand | TyperGroup, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the arguments and the options of a command, each with its text."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for each in command.get_params(ctx):
        record = each.get_help_record(ctx)
        if record and each.param_type_name == "argument":
            sections["Arguments"].append((_name(each), record[1]))
        elif record:
            sections["Options"].append(record)
    return {title: rows for title, rows in sections.items() if rows}


def _write_options(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    for title, rows in parameters(command, ctx).items():
        with formatter.section(title):
            _write(formatter, rows)


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _write(formatter: Any, rows: Iterable[tuple[str, str]]) -> None:
    """Write names with their texts, beside them where the names are short, else below them."""
    rows = list(rows)
    longest = max(len(name) for name, _ in rows)
    beside = longest <= _COLUMN and formatter.width >= 2 * longest + 20
    left = " " * formatter.current_indent
    start = left + " " * (longest + _INDENT if beside else 2 * _INDENT)
    for name, text in rows:
        text = re.sub(r"\[default: [^\]]{,20}\]", lambda found: found[0].replace(" ", _TIED), text)
        wrapped = textwrap.wrap(text, formatter.width, initial_indent=start, subsequent_indent=start,
                                break_long_words=False, break_on_hyphens=False)  # fmt: skip
        lines = [line.replace(_TIED, " ") for line in wrapped]
        if beside and lines:
            lines[0] = left + name + lines[0][len(left) + len(name) :]
        else:
            lines.insert(0, left + name)
        formatter.write("\n".join(lines) + "\n")
