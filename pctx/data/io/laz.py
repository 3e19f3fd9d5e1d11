"""The compressed points of a LAZ file, by lazrs, in the chunks in which they came.

n points of r bytes. The record of LASzip is laid out as in its source, `laszip.hpp`.
"""

from __future__ import annotations

import io
import logging
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pctx.data.io.errors import ReadError
from pctx.data.io.laz_decoder import Encoded, decode

log = logging.getLogger(__name__)

_POINTWISE, _CHUNKED, _LAYERED = 1, 2, 3
"""Ways to compress: one stream (before LASzip 2.0), chunks, chunks in layers (formats 6 to 10)."""
_VARIABLE = 2**32 - 1
"""The chunk size that stands for chunks of any size."""
_LAYERS = {10: 9, 11: 1, 12: 2, 13: 1}
"""Layers of an item: a point, RGB, RGB and NIR, a wave packet; of extra bytes, one a byte."""
_WAVES, _CHANNEL_BYTE, _CHANNEL_BITS = 13, 15, 0x30
"""The item of a wave packet in layers, and where a point says which channel it is of.

lazrs 0.8.2 mixes up the packets of points whose neighbour is of another channel.
"""
_SLACK = 8
"""Bytes by which two encoders may differ in ending a chunk."""

Chunks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """What stands between the records and the tail of a LAZ file.

    Attributes:
        encoded: where the points are.
        chunks: (points, bytes) of each chunk.
        end: the byte of the file behind the chunk table.
        num_points: n.
    """

    encoded: Encoded
    chunks: Chunks
    end: int
    num_points: int

    def blocks(
        self, size: int, first: int = 0, count: int | None = None, step: int = 1
    ) -> Iterator[np.ndarray]:
        """Decompress points in order, `size` at a time: each (k, r) uint8.

        Args:
            size: k, but for the last block.
            first: the number of the first point.
            count: how many points to go through; None for all that follow.
            step: every how manyth is given.

        Raises:
            ReadError: the bytes are cut or corrupt.
        """
        count = self.num_points - first if count is None else count
        for number, block in enumerate(decode(self.encoded, first, count, size, step)):
            if not number and _mixes_waves(self.encoded.data, block):
                log.warning("%s: its wave packets are of several channels", self.encoded.path)
            yield block


def laszip_data(point_format: int, extra_size: int, *, variable: bool) -> bytes:
    """Give the content of the record that says how points are compressed."""
    import lazrs

    return bytes(lazrs.LazVlr.new_for_compression(point_format, extra_size, variable).record_data())


def has_variable_chunks(data: bytes) -> bool:
    """Whether a record of LASzip speaks of chunks of any size, as COPC has them."""
    return int(struct.unpack_from("<I", data, 12)[0]) == _VARIABLE


def layers_of(fields: Collection[str]) -> int:
    """Give the bits of the layers of positions, returns, classes and extra bytes, and of fields.

    Args:
        fields: names among color and intensity.
    """
    import lazrs

    bits: int = lazrs.SELECTIVE_DECOMPRESS_Z | lazrs.SELECTIVE_DECOMPRESS_CLASSIFICATION
    bits |= lazrs.SELECTIVE_DECOMPRESS_ALL_EXTRA_BYTES
    bits |= lazrs.SELECTIVE_DECOMPRESS_RGB if "color" in fields else 0
    return bits | (lazrs.SELECTIVE_DECOMPRESS_INTENSITY if "intensity" in fields else 0)


def open_points(path: Path, stream: BinaryIO, data: bytes, num_points: int, length: int) -> Packed:
    """Check how the points are compressed, from where the stream stands.

    Args:
        path: to name the file in errors.
        data: the content of the record of LASzip.
        num_points: n, as the header says.
        length: r, as the header says.

    Raises:
        ReadError: the bytes are cut or corrupt, or the header's count is not theirs.
    """
    compressor, end, body = _check_record(path, data, length), None, None
    if compressor == _POINTWISE:
        with _faults(path):
            body, data = _as_one_chunk(stream.read(), data, num_points)
        stream, end = io.BytesIO(body), path.stat().st_size
    start = stream.tell()
    encoded = Encoded(path=path, body=body, start=start, data=data, length=length)
    if num_points == 0 and not stream.read(1):
        return Packed(encoded=encoded, chunks=(), end=start, num_points=0)
    stream.seek(start)
    with _faults(path):
        table = _find_table(path, stream)
        stream.seek(start)
        chunks = _read_chunks(path, stream, table, data, num_points)
        if compressor == _LAYERED:
            stream.seek(start + 8)
            _check_layers(path, stream, chunks, data, length)
        if end is None:
            end = table + len(_encode_table(chunks, data))
    packed = Packed(encoded=encoded, chunks=chunks, end=end, num_points=num_points)
    if compressor == _CHUNKED and chunks and not has_variable_chunks(data):
        _check_last_chunk(packed)
    return packed


def write_points(
    stream: BinaryIO, data: bytes, blocks: Iterable[np.ndarray], chunks: Chunks
) -> Chunks:
    """Compress points to where the stream stands, which ends behind the chunk table.

    Args:
        blocks: the points in order, each (k, r) uint8.
        chunks: how to cut them, where the record speaks of chunks of any size.

    Returns:
        (points, bytes) of each chunk.

    Raises:
        ValueError: they have wave packets of several channels of a scanner.
    """
    import lazrs

    start, vlr = stream.tell(), lazrs.LazVlr(data)
    sizes = [n for n, _ in chunks if n] if has_variable_chunks(data) else []
    compressor, left = None, sizes.pop(0) if sizes else -1
    for block in blocks:
        if _mixes_waves(data, block):
            raise ValueError(
                "wave packets of several scanner channels cannot be compressed without loss; "
                "write .las"
            )
        while len(block):
            if compressor is None:
                compressor = lazrs.LasZipCompressor(stream, vlr)
            elif left == 0:
                compressor.finish_current_chunk()
                left = sizes.pop(0) if sizes else -1
            part = block if left < 0 else block[:left]
            compressor.compress_many(part.reshape(-1))
            block = block[len(part) :]
            left -= len(part) if left > 0 else 0
    if compressor is None:
        stream.write(struct.pack("<q", start + 8) + _encode_table((), data))
        return ()
    compressor.done()
    end = stream.tell()
    stream.seek(start)
    written = tuple(lazrs.read_chunk_table(stream, vlr))
    stream.seek(end)
    return written


def _mixes_waves(data: bytes, points: np.ndarray) -> bool:
    """Whether points (n, r) have wave packets in layers and are of several channels."""
    kinds = [struct.unpack_from("<H", data, at)[0] for at in range(34, len(data) - 5, 6)]
    if _WAVES not in kinds or not len(points):
        return False
    channel = points[:, _CHANNEL_BYTE] & _CHANNEL_BITS
    return bool((channel != channel[0]).any())


def _check_record(path: Path, data: bytes, length: int) -> int:
    items = struct.unpack_from("<H", data, 32)[0] if len(data) >= 34 else 0
    if not items or len(data) < 34 + 6 * items:
        raise ReadError(f"{path}: its record of LASzip is cut short")
    compressor, coder = struct.unpack_from("<HH", data)
    sizes = [struct.unpack_from("<H", data, 34 + 6 * i + 2)[0] for i in range(items)]
    if compressor not in (_POINTWISE, _CHUNKED, _LAYERED) or coder != 0:
        raise ReadError(f"{path}: compressor {compressor} with coder {coder} is not LASzip's")
    if sum(sizes) != length:
        raise ReadError(
            f"{path}: points of {length} bytes are said to be compressed as {sum(sizes)} bytes"
        )
    return int(compressor)


def _as_one_chunk(body: bytes, data: bytes, num_points: int) -> tuple[bytes, bytes]:
    """Give a file of before LASzip 2.0 the frame of today: a place, one chunk, a chunk table."""
    data = struct.pack("<H", _CHUNKED) + data[2:12] + struct.pack("<I", _VARIABLE) + data[16:]
    table = _encode_table(((num_points, len(body)),), data)
    return struct.pack("<q", 8 + len(body)) + body + table, data


def _find_table(path: Path, stream: BinaryIO) -> int:
    start = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    place = -1
    if end - start >= 16:
        # A writer that could not go back left -1, and the place in the last 8 bytes.
        for where in (start, end - 8):
            stream.seek(where)
            place = struct.unpack("<q", stream.read(8))[0]
            if place != -1:
                break
    if not start + 8 <= place <= end - 8:
        raise ReadError(f"{path}: its chunk table is missing: it is truncated")
    return int(place)


def _read_chunks(path: Path, stream: BinaryIO, table: int, data: bytes, num_points: int) -> Chunks:
    import lazrs

    start = stream.tell()
    stream.seek(table + 4)
    count, size = struct.unpack("<I", stream.read(4))[0], struct.unpack_from("<I", data, 12)[0]
    # Before the table is decoded: a corrupt count would ask for all memory.
    if count > table - start or (size == 0 and num_points):
        raise ReadError(f"{path}: its chunk table is corrupt")
    if size != _VARIABLE and count != -(-num_points // max(size, 1)):
        raise ReadError(
            f"{path}: the header says {num_points} points, its {count} chunks hold {size} each"
        )
    stream.seek(start)
    chunks: Chunks = tuple(lazrs.read_chunk_table(stream, lazrs.LazVlr(data)))
    if sum(n for _, n in chunks) > table - start - 8:
        raise ReadError(f"{path}: its chunk table is corrupt")
    if size == _VARIABLE:
        if (found := sum(n for n, _ in chunks)) != num_points:
            raise ReadError(f"{path}: the header says {num_points} points, its chunks hold {found}")
        return chunks
    last = num_points - (len(chunks) - 1) * size
    return tuple((size if i < len(chunks) - 1 else last, n) for i, (_, n) in enumerate(chunks))


def _check_layers(path: Path, stream: BinaryIO, chunks: Chunks, data: bytes, length: int) -> None:
    """Hold what each layered chunk says of itself against the table: its points and its layers.

    A size that lies would make the decoder ask for all memory, which ends the process.
    """
    items = [struct.unpack_from("<HH", data, at) for at in range(34, len(data) - 5, 6)]
    num_layers = sum(_LAYERS.get(kind, size) for kind, size in items)
    head = struct.Struct(f"<{length}xI{num_layers}I")
    for num_points, size in chunks:
        if num_points == 0:
            continue
        block = stream.read(head.size)
        found, *layers = head.unpack(block) if len(block) == head.size else (0,)
        if found != num_points:
            raise ReadError(
                f"{path}: a chunk of {num_points} points by its header holds {found}: the count is "
                "wrong or the file corrupt"
            )
        if head.size + sum(layers) != size:
            raise ReadError(f"{path}: a chunk of {size} bytes says that it has more or fewer")
        stream.seek(size - head.size, io.SEEK_CUR)


def _check_last_chunk(packed: Packed) -> None:
    """Notice a count that is not that of the last chunk, which the decoder of chunks does not."""
    num_points, size = packed.chunks[-1]
    first = packed.num_points - num_points
    last = decode(packed.encoded, first, num_points, max(num_points, 1))
    again = write_points(io.BytesIO(), packed.encoded.data, last, packed.chunks[-1:])
    if again and abs(again[0][1] - size) > _SLACK:
        raise ReadError(
            f"{packed.encoded.path}: the header says {packed.num_points} points, which is not what "
            "its chunks hold"
        )


def _encode_table(chunks: Chunks, data: bytes) -> bytes:
    import lazrs

    stream = io.BytesIO()
    lazrs.write_chunk_table(stream, list(chunks), lazrs.LazVlr(data))
    return stream.getvalue()


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    import lazrs

    try:
        yield
    except (lazrs.LazrsError, struct.error, OverflowError, MemoryError) as error:
        raise ReadError(f"{path}: its points cannot be decompressed ({error})") from error
    except BaseException as error:
        # A panic of Rust is no Exception, and its class has no name to import.
        if type(error).__name__ != "PanicException":
            raise
        raise ReadError(f"{path}: its points cannot be decompressed ({error})") from error
