"""COPC: the octree of chunks in a LAZ file, kept true when the chunks change their places.

Laid out as in the COPC 1.0 specification.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from pctx.data.io.las_file import LasFile
from pctx.data.io.las_record import RECORD_HEAD, Record

_INFO, _HIERARCHY = 1, 1000
_ROOT = 40
"""Where the info record states the place of the hierarchy's root page."""
_ENTRY = np.dtype([("key", "<i4", 4), ("offset", "<u8"), ("size", "<i4"), ("count", "<i4")])
_PAGE = -1
"""The count of an entry that stands for a page of entries instead of a chunk."""
_SUPERSEDED = struct.pack("<16sH", b"LASF_Spec", 7)
"""The user and number of a record that no longer holds."""


def is_copc(file: LasFile) -> bool:
    """Whether the first record says that the chunks make an octree."""
    return bool(file.records) and _is(file.records[0], _INFO)


def without_copc(file: LasFile) -> LasFile:
    """Mark the records of the octree as superseded, for a file that has no chunks."""
    info = file.records[0]
    info = replace(info, head=info.head[:2] + _SUPERSEDED + info.head[20:])
    tail = bytearray(file.tail)
    for at, record in file.extended_records():
        if _is(record, _HIERARCHY):
            tail[at + 2 : at + 20] = _SUPERSEDED
    return replace(file, records=(info, *file.records[1:]), tail=bytes(tail))


def relocate(path: Path, before: LasFile, after: LasFile) -> None:
    """Put the new places and sizes of the chunks into the octree of a file just written.

    Args:
        path: the file.
        before: the file that it is a copy of.
        after: the file as written.

    Raises:
        ValueError: the octree names a chunk that the file does not have.
    """
    moved = after.tail_start - before.tail_start
    old, new = _places(before), _places(after)
    tail = bytearray(after.tail)
    for at, record in after.extended_records():
        if not _is(record, _HIERARCHY):
            continue
        entries = np.frombuffer(record.data[: len(record.data) // 32 * 32], _ENTRY).copy()
        for entry in entries:
            if entry["count"] == _PAGE:
                entry["offset"] += moved
            elif entry["count"] > 0:
                index = old.get(int(entry["offset"]))
                if index is None:
                    raise ValueError(
                        f"{path.name}: the octree of the source names a chunk at byte "
                        f"{entry['offset']}, where there is none; write .las instead"
                    )
                entry["offset"], entry["size"] = list(new)[index], after.chunks[index][1]
        begin = at + len(record.head)
        tail[begin : begin + entries.nbytes] = entries.tobytes()
    root = struct.unpack_from("<Q", after.records[0].data, _ROOT)[0]
    with path.open("r+b") as stream:
        stream.seek(len(after.header) + RECORD_HEAD.size + _ROOT)
        stream.write(struct.pack("<Q", root + moved))
        stream.seek(after.tail_start)
        stream.write(tail)


def _is(record: Record, number: int) -> bool:
    return (record.user_id, record.record_id) == ("copc", number)


def _places(file: LasFile) -> dict[int, int]:
    """Give the number of each chunk by its first byte."""
    places, at = {}, file.offset_to_points + 8
    for index, (_, size) in enumerate(file.chunks):
        places[at] = index
        at += size
    return places
