"""LasFile: a LAS or LAZ file as its parts in bytes, taken apart and put together unchanged.

n points of r bytes. Field offsets are those of the public header block, LAS 1.4 R15, table 3.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from pctx.data.io import laz
from pctx.data.io.errors import ReadError
from pctx.data.io.las_record import EXTENDED_HEAD, Record, split_records

LAS_MAGIC = b"LASF"
_HEADER_SIZE, _HEADER_SIZE_1_3, _HEADER_SIZE_1_4 = 227, 235, 375
_RECORD_SIZES = (20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67)
"""Bytes of a point by point format, without extra bytes."""

_OFFSET_TO_POINTS, _NUM_VLRS, _FORMAT, _RECORD_LENGTH, _LEGACY_COUNT = 96, 100, 104, 105, 107
_SCALES, _WAVEFORMS, _EVLRS, _NUM_EVLRS, _COUNT = 131, 227, 235, 243, 247
_COMPRESSED_BIT = 0x80
_LASZIP_RECORD = 22204


@dataclass(frozen=True, kw_only=True, eq=False)
class LasFile:
    """The parts of a file in its order; `write` of an unchanged one gives the same bytes.

    Attributes:
        header: the public header block.
        records: those that could be read; what follows them up to the points is `gap`.
        points: (n, r) uint8, decompressed.
        tail: what follows the points: extended records, waveforms.
        tail_start: where it stood.
        chunks: of a LAZ file, (points, bytes) of each compressed chunk.
    """

    header: bytes
    records: tuple[Record, ...]
    gap: bytes
    points: np.ndarray
    tail: bytes = b""
    tail_start: int = 0
    chunks: laz.Chunks = ()

    @property
    def point_format(self) -> int:
        """0 to 10."""
        return self.header[_FORMAT] & 0x3F

    @property
    def extra_size(self) -> int:
        """Bytes of a point behind the fields of its format."""
        return self.points.shape[1] - _RECORD_SIZES[self.point_format]

    @property
    def compressed(self) -> bool:
        """Whether the header says that the points are LAZ."""
        return bool(self.header[_FORMAT] & _COMPRESSED_BIT)

    @property
    def scales_and_offsets(self) -> tuple[np.ndarray, np.ndarray]:
        """Two (3,) float64: position = integer * scale + offset."""
        numbers = np.frombuffer(self.header, "<f8", count=6, offset=_SCALES)
        return numbers[:3], numbers[3:]

    @property
    def num_points(self) -> int:
        """Points that the header speaks of, read or not."""
        return _num_points(self.header)

    @property
    def offset_to_points(self) -> int:
        """Where the points begin."""
        return int(struct.unpack_from("<I", self.header, _OFFSET_TO_POINTS)[0])

    def extended_records(self) -> Iterator[tuple[int, Record]]:
        """Give the extended records with where they stand in `tail`."""
        if not _is_1_4(self.header):
            return
        start, count = struct.unpack_from("<QI", self.header, _EVLRS)
        at = start - self.tail_start
        for _ in range(count):
            if not 0 <= at <= len(self.tail) - EXTENDED_HEAD.size:
                return
            head = self.tail[at : at + EXTENDED_HEAD.size]
            size = struct.unpack_from("<Q", head, 20)[0]
            yield at, Record(head=head, data=self.tail[at + len(head) : at + len(head) + size])
            at += len(head) + size

    def with_records(self, records: tuple[Record, ...]) -> LasFile:
        """Exchange the records, and the two numbers in the header that depend on them."""
        count = struct.unpack_from("<I", self.header, _NUM_VLRS)[0]
        grown = len(records) - len(self.records)
        size = sum(len(r.head) + len(r.data) for r in records)
        header = _patched(self.header, _NUM_VLRS, "<I", count + grown)
        start = len(self.header) + size + len(self.gap)
        header = _patched(header, _OFFSET_TO_POINTS, "<I", start)
        return replace(self, header=header, records=records)

    def with_points(self, points: np.ndarray) -> LasFile:
        """Exchange the points (n, r), and the record length in the header."""
        header = _patched(self.header, _RECORD_LENGTH, "<H", points.shape[1])
        return replace(self, header=header, points=points)

    def with_compression(self, compressed: bool) -> LasFile:
        """Mark the points as LAZ or as plain; the record that LAZ needs is renewed or goes."""
        bits = self.point_format | (_COMPRESSED_BIT if compressed else 0)
        file = replace(self, header=_patched(self.header, _FORMAT, "<B", bits))
        old = next((r for r in self.records if r.record_id == _LASZIP_RECORD), None)
        if not compressed:
            return file.with_records(tuple(r for r in self.records if r is not old))
        variable = old is not None and laz.has_variable_chunks(old.data)
        data = laz.laszip_data(self.point_format, self.extra_size, variable=variable)
        if old is not None:
            new = old.with_data(data)
            return file.with_records(tuple(new if r is old else r for r in self.records))
        new = Record.new("laszip encoded", _LASZIP_RECORD, data, "http://laszip.org")
        return file.with_records((*self.records, new))


def read_las_front(path: Path) -> LasFile:
    """Take apart what stands before the points, and leave these out.

    Raises:
        ReadError: it is no LAS or LAZ file.
    """
    with path.open("rb") as stream:
        return _read_front(path, stream, path.stat().st_size)


class Blocks(Protocol):
    """Gives points of a file in order, so many at a time: each (k, r) uint8."""

    def __call__(
        self, size: int, first: int = 0, count: int | None = None, step: int = 1
    ) -> Iterator[np.ndarray]:
        """Go from number `first` through `count` points, or all, and give every `step`-th."""


@contextmanager
def open_las_file(
    path: Path, fields: Collection[str] | None = None
) -> Iterator[tuple[LasFile, int, Blocks]]:
    """Take a LAS 1.0 to 1.4 file apart, compressed or not, but for its points.

    Args:
        path: the file.
        fields: what need not be read is left out where that is faster, see `laz.layers_of`; None
            reads every byte.

    Returns:
        The file with no points (0, r), their number, and what reads them while the file is open.

    Raises:
        ReadError: it is no such file, or holds less than its header says.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        file = _read_front(path, stream, size)
        num_points = file.num_points
        length = struct.unpack_from("<H", file.header, _RECORD_LENGTH)[0]
        file = replace(file, points=np.zeros((0, length), np.uint8))
        if file.compressed:
            file, blocks = _compressed(path, stream, file, num_points, length, fields)
        else:
            file, blocks = _plain(path, stream, file, num_points, length)
        stream.seek(file.tail_start)
        file = replace(file, tail=stream.read())
        _check_extended(path, file, size)
        yield file, num_points, blocks


def read_las_file(path: Path) -> LasFile:
    """Take a LAS 1.0 to 1.4 file apart, compressed or not.

    Raises:
        ReadError: it is no such file, or holds less than its header says.
    """
    with open_las_file(path) as (file, num_points, blocks):
        for points in blocks(max(num_points, 1)):
            return replace(file, points=points)
        return file


def write_las_file(
    file: LasFile, path: Path, blocks: Iterable[np.ndarray] | None = None
) -> LasFile:
    """Put a file together; what its header says of the tail's place is kept true.

    Args:
        file: what is written.
        path: where to.
        blocks: its points in order, each (k, r) uint8; None takes those of the file.

    Returns:
        The file as written, with its new `chunks` and `tail_start`.
    """
    blocks = [file.points] if blocks is None else blocks
    with path.open("w+b") as stream:
        stream.write(file.header + b"".join(r.head + r.data for r in file.records) + file.gap)
        if file.compressed:
            data = next(r.data for r in file.records if r.record_id == _LASZIP_RECORD)
            file = replace(file, chunks=laz.write_points(stream, data, blocks, file.chunks))
        else:
            for block in blocks:
                stream.write(np.ascontiguousarray(block).data)
        moved = stream.tell() - file.tail_start
        header = file.header
        for field, there in ((_WAVEFORMS, _is_1_3(header)), (_EVLRS, _is_1_4(header))):
            place = struct.unpack_from("<Q", header, field)[0] if there else 0
            if file.tail and place >= file.tail_start:
                header = _patched(header, field, "<Q", place + moved)
        stream.write(file.tail)
        stream.seek(0)
        stream.write(header)
    return replace(file, header=header, tail_start=file.tail_start + moved)


def _read_header(path: Path, stream: BinaryIO, size: int) -> bytes:
    head = stream.read(_HEADER_SIZE)
    if head[:4] != LAS_MAGIC:
        raise ReadError(f"{path}: this is no LAS file, it begins with {head[:8]!r}")
    length = struct.unpack_from("<H", head, 94)[0] if len(head) == _HEADER_SIZE else _HEADER_SIZE
    head += stream.read(max(length, _HEADER_SIZE) - len(head))
    if len(head) < length:
        raise ReadError(f"{path}: the file ends at byte {size}, within its header")
    if head[24] != 1 or head[25] > 4 or length < _HEADER_SIZE:
        raise ReadError(
            f"{path}: LAS {head[24]}.{head[25]} with a header of {length} bytes is not known; "
            "1.0 to 1.4 are read"
        )
    point_format, record = head[_FORMAT] & 0x3F, struct.unpack_from("<H", head, _RECORD_LENGTH)[0]
    if point_format >= len(_RECORD_SIZES):
        raise ReadError(f"{path}: point format {point_format} is not known; 0 to 10 are read")
    if record < _RECORD_SIZES[point_format]:
        raise ReadError(
            f"{path}: points of format {point_format} take {_RECORD_SIZES[point_format]} bytes, "
            f"the header says {record}"
        )
    return head


def _read_front(path: Path, stream: BinaryIO, size: int) -> LasFile:
    head = _read_header(path, stream, size)
    start, count = struct.unpack_from("<II", head, _OFFSET_TO_POINTS)
    if not len(head) <= start <= size:
        raise ReadError(
            f"{path}: its header says that the points begin at byte {start} of {size}: it is "
            "corrupt or truncated"
        )
    records, gap = split_records(stream.read(start - len(head)), count)
    return LasFile(header=head, records=records, gap=gap, points=np.zeros((0, 0), np.uint8))


def _is_1_3(head: bytes) -> bool:
    return head[25] >= 3 and len(head) >= _HEADER_SIZE_1_3


def _is_1_4(head: bytes) -> bool:
    return head[25] >= 4 and len(head) >= _HEADER_SIZE_1_4


def _num_points(head: bytes) -> int:
    legacy = struct.unpack_from("<I", head, _LEGACY_COUNT)[0]
    count = struct.unpack_from("<Q", head, _COUNT)[0] if _is_1_4(head) else legacy
    return int(count or legacy)


def _compressed(
    path: Path,
    stream: BinaryIO,
    file: LasFile,
    num_points: int,
    length: int,
    fields: Collection[str] | None,
) -> tuple[LasFile, Blocks]:
    record = next((r for r in file.records if r.record_id == _LASZIP_RECORD), None)
    if record is None:
        raise ReadError(f"{path}: its points are compressed, and the record that says how is lost")
    packed = laz.open_points(path, stream, record.data, num_points, length)
    if fields is not None:
        packed = replace(packed, encoded=replace(packed.encoded, layers=laz.layers_of(fields)))
    records = tuple(r.with_data(packed.encoded.data) if r is record else r for r in file.records)
    file = replace(file, records=records, tail_start=packed.end, chunks=packed.chunks)
    return file, packed.blocks


def _plain(
    path: Path, stream: BinaryIO, file: LasFile, num_points: int, length: int
) -> tuple[LasFile, Blocks]:
    start = file.offset_to_points
    found = (path.stat().st_size - start) // length
    if found < num_points:
        raise ReadError(
            f"{path}: the header says {num_points} points, the file holds {found}: it is truncated"
        )

    def blocks(
        size: int, first: int = 0, count: int | None = None, step: int = 1
    ) -> Iterator[np.ndarray]:
        stream.seek(start + first * length)
        count = num_points - first if count is None else count
        for done in range(0, count, size * step):
            wanted = min(size * step, count - done) * length
            points = np.fromfile(stream, np.uint8, wanted).reshape(-1, length)
            yield points if step == 1 else points[::step].copy()

    return replace(file, tail_start=start + num_points * length), blocks


def _check_extended(path: Path, file: LasFile, size: int) -> None:
    if not _is_1_4(file.header):
        return
    first, count = struct.unpack_from("<QI", file.header, _EVLRS)
    records = [record for _, record in file.extended_records()]
    whole = all(len(r.data) == struct.unpack_from("<Q", r.head, 20)[0] for r in records)
    if len(records) < count or not whole:
        raise ReadError(
            f"{path}: the header says {count} extended records from byte {first} on, and the file "
            f"ends at {size}: it is truncated"
        )


def _patched(data: bytes, at: int, form: str, value: int) -> bytes:
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]
