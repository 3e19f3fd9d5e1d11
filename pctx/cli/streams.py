"""open_streams: what a program says has a place to go, and no letter of it ends the program."""

from __future__ import annotations

import io
import os
import sys


def open_streams() -> None:
    """Open the standard streams that are closed, to nowhere, and let every name be printed.

    A file opened later would else get the number of a closed stream, and what a library or a child
    says would go into it. A letter that is not of the terminal's code is written as its number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
