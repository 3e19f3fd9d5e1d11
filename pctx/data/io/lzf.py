"""LZF, M. Lehmann's compression, as the blocks of a compressed PCD file have it.

A block is a row of literal runs (a byte below 32, and that many bytes and one more) and of copies
(three bits of length, 13 of distance, and a byte of more length where the three are all set).
"""

from __future__ import annotations

import numpy as np

LARGEST_RATIO = 88
"""No block grows by more: three bytes give at most 264."""
_PIECE = 1 << 20
"""Bytes that are compressed at a time, without copies from earlier ones: it bounds the memory."""
_LONGEST_RUN, _LONGEST_COPY, _FARTHEST = 32, 264, 8192


def decompress(block: bytes, size: int) -> bytes:
    """Give the `size` bytes that a block holds.

    Raises:
        ValueError: the block is corrupt, or holds another number of bytes.
    """
    out = bytearray()
    at, end = 0, len(block)
    try:
        while at < end and len(out) <= size:
            control = block[at]
            at += 1
            if control < _LONGEST_RUN:
                out += block[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += block[at]
                at += 1
            begin = len(out) - ((control & 31) << 8) - block[at] - 1
            at += 1
            if begin < 0:
                raise ValueError("a compressed block refers to bytes before its first")
            length += 2
            piece = out[begin : begin + length]
            while len(piece) < length:  # the copy overlaps what it makes
                piece += piece[: length - len(piece)]
            out += piece
    except IndexError:
        at = end + 1
    if at != end or len(out) != size:
        raise ValueError(f"a compressed block does not hold the {size} bytes that it states")
    return bytes(out)


def compress(data: bytes) -> bytes:
    """Give a block that `decompress` turns back into the data."""
    pieces = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    return b"".join(map(_compress_piece, pieces))


def _compress_piece(data: bytes) -> bytearray:
    out = bytearray()
    at = start = 0
    for here, before in _repeats(data):
        if here < at:
            continue
        _add_run(out, data[start:here])
        length, limit = 3, min(_LONGEST_COPY, len(data) - here)
        while length < limit and data[before + length] == data[here + length]:
            length += 1
        distance, code = here - before - 1, length - 2
        if code < 7:
            out.append(code << 5 | distance >> 8)
        else:
            out += bytes((7 << 5 | distance >> 8, code - 7))
        out.append(distance & 255)
        at = start = here + length
    _add_run(out, data[start:])
    return out


def _repeats(data: bytes) -> list[tuple[int, int]]:
    """Give each place whose three bytes stood before, near enough, and the last such place."""
    byte = np.frombuffer(data, np.uint8).astype(np.int32)
    if len(byte) < 4:
        return []
    key = byte[:-2] << 16 | byte[1:-1] << 8 | byte[2:]
    order = np.argsort(key, kind="stable")
    here, before = order[1:], order[:-1]
    found = (key[here] == key[before]) & (here - before <= _FARTHEST)
    here, before = here[found], before[found]
    by_place = np.argsort(here)
    return list(zip(here[by_place].tolist(), before[by_place].tolist(), strict=True))


def _add_run(out: bytearray, literals: bytes) -> None:
    for at in range(0, len(literals), _LONGEST_RUN):
        piece = literals[at : at + _LONGEST_RUN]
        out.append(len(piece) - 1)
        out += piece
