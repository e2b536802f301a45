"""The first view of a simulated device's waves: the four streams of its data path, and its registers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["save_views"]

_DATAPATH = "top.datapath"
_STREAMS = {"tx_ulpdu": {"length": 16}, "tx_mpa": {}, "rx_mpa": {}, "rx_ulpdu": {"verdict": 2}}
_BUS = {"request": 1, "ack": 1, "write": 1, "address": 8, "write_data": 32, "read_data": 32}
_GTKWAVE_TITLE, _GTKWAVE_BINARY, _GTKWAVE_HEX = "@200", "@28", "@22"


def _groups(lanes: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield titles, each with its signals: full names and widths in bits."""
    for stream, extra in _STREAMS.items():
        fields = {"last": 1, "octets": (4 * lanes).bit_length(), **extra, "data": 32 * lanes}
        signals = {f"{stream}__{each}": 1 for each in ("valid", "ready")}
        signals |= {f"{stream}__payload.{name}": bits for name, bits in fields.items()}
        yield stream, {f"{_DATAPATH}.{name}": bits for name, bits in signals.items()}
    yield "registers", {f"{_DATAPATH}.bus__{name}": bits for name, bits in _BUS.items()}
    yield "events", {f"{_DATAPATH}.irq": 1}


def save_views(trace: Path, lanes: int) -> None:
    """Write a save file for GTKWave (``.gtkw``) and a command file for Surfer (``.sucl``) beside ``trace``.

    Raises OSError.
    """
    save = trace.with_suffix(".gtkw")
    gtkwave = [f"[dumpfile] \"{trace}\"", f"[savefile] \"{save}\"", "[timestart] 0", "[sst_width] 250"]
    surfer = []
    for title, signals in _groups(lanes):
        gtkwave += [_GTKWAVE_TITLE, f"-{title}"]
        surfer.append(f"divider_add {title}")
        for name, bits in signals.items():
            gtkwave += [_GTKWAVE_BINARY, name] if bits == 1 else [_GTKWAVE_HEX, f"{name}[{bits - 1}:0]"]
            # Surfer treats a dot as a level of the hierarchy, so it shows a payload as a whole, not by its fields.
            whole = f"variable_add {name.replace('__payload.', '__payload ').split()[0]}"
            if whole not in surfer:
                surfer.append(whole)
    save.write_text("\n".join(gtkwave) + "\n")
    trace.with_suffix(".sucl").write_text("\n".join([*surfer, "zoom_fit"]) + "\n")
