"""Draws the pictures of the documentation: ``python docs/pictures [FOLDER]``, by default into its own folder."""

import sys
from pathlib import Path

import board
import data_path
import split
import waves
import whole_rnic

PICTURES = {"data-path": data_path, "whole-rnic": whole_rnic, "board": board, "split": split,
            "waves": waves}

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
    for name, picture in PICTURES.items():
        ((folder if folder.is_dir() else folder.parent) / f"{name}.svg").write_text(picture.draw().svg())
