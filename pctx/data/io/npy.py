"""One array of an `.npy` file, no larger than what the file holds.

The header is read here, as numpy would reserve memory for whatever shape it states.
"""

from __future__ import annotations

import ast
import struct
from typing import IO

import numpy as np

NPY_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 14


def load(stream: IO[bytes], size: int) -> np.ndarray:
    """Read an array.

    Args:
        stream: stands at the first byte of the array's file.
        size: the bytes that this file has.

    Raises:
        ValueError: it is no such file, holds Python objects, or less than its header says.
    """
    dtype, shape, fortran, start = _read_header(stream)
    if dtype.hasobject:
        raise ValueError("an array of Python objects is not read")
    count = 1
    for length in shape:
        count *= length
    if count * max(dtype.itemsize, 1) > size - start:
        raise ValueError(
            f"an array of shape {shape} and type {dtype} takes {count * dtype.itemsize} bytes, the "
            f"file holds {max(size - start, 0)}: it is truncated"
        )
    array = np.empty(count, dtype)
    if array.nbytes:
        target, at = array.view(np.uint8), 0
        while at < len(target):
            # ZipExtFile gives no more than it has at hand.
            part = stream.read(min(len(target) - at, 1 << 24))
            if not part:
                raise ValueError(f"{len(target)} bytes of numbers are stated, {at} are there")
            target[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
    array = array.astype(dtype.newbyteorder("="), copy=False)
    return array.reshape(shape, order="F" if fortran else "C")


def _read_header(stream: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    head = stream.read(8)
    if head[:6] != NPY_MAGIC or len(head) < 8 or head[6] not in (1, 2, 3):
        raise ValueError(f"this is no .npy file, it begins with {head!r}")
    form = struct.Struct("<H" if head[6] == 1 else "<I")
    word = stream.read(form.size)
    length = form.unpack(word)[0] if len(word) == form.size else 0
    if not 0 < length <= _LONGEST_HEADER:
        raise ValueError(f"its header says that it has {length} bytes")
    text = stream.read(length).decode("latin-1" if head[6] < 3 else "utf-8")
    try:
        facts = ast.literal_eval(text.strip())
        shape = tuple(facts["shape"])
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"shape {shape}")
        dtype = np.lib.format.descr_to_dtype(facts["descr"])
        return np.dtype(dtype), shape, bool(facts["fortran_order"]), 8 + form.size + length
    except Exception as error:  # numpy evaluates what stands there, which fails in any way
        raise ValueError(f"its header {text[:60]!r} is not one of numpy") from error
