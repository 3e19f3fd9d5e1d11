"""Decompress LAZ points to the standard output: the program that `laz_decoder` starts.

It is run by its path, without pctx and NumPy, so that it starts in a hundredth of a second.
Arguments: where lazrs is, the file or `-`, the byte at which the points begin, the first point that
is wanted, how many to go through, the bytes of a point, the step from one that is written to the
next, and the bits of the layers that are decompressed. The standard input holds the record of
LASzip behind its size in 4 bytes, and in place of a file the compressed points.
"""

from __future__ import annotations

import io
import sys

_PIECE = 1 << 20
"""Bytes that are decompressed at a time."""


def main() -> int:
    """Write the points, or a line to the standard error that says what is wrong with them."""
    place, name, *numbers = sys.argv[1:]
    start, first, count, length, step, layers = map(int, numbers)
    sys.path.append(place)
    import lazrs  # type: ignore[import-not-found, unused-ignore]

    source = sys.stdin.buffer
    data = source.read(int.from_bytes(source.read(4), "little"))
    try:
        with io.BytesIO(source.read()) if name == "-" else open(name, "rb") as stream:  # noqa: PTH123
            stream.seek(start)
            decompressor = lazrs.LasZipDecompressor(
                stream, data, lazrs.DecompressionSelection(layers)
            )
            if first:
                decompressor.seek(first)
            at_a_time = max(_PIECE // length // step, 1) * step
            for done in range(0, count, at_a_time):
                piece = bytearray(min(at_a_time, count - done) * length)
                decompressor.decompress_many(piece)
                sys.stdout.buffer.write(piece if step == 1 else _every(step, piece, length))
        sys.stdout.buffer.flush()
    except BaseException as error:  # a panic of Rust is no Exception
        sys.stderr.write(f"\n{' '.join(str(error).split())}")
        return 1
    return 0


def _every(step: int, piece: bytearray, length: int) -> bytearray:
    """Give every `step`-th point, the first included."""
    chosen = bytearray(-(-len(piece) // (length * step)) * length)
    for byte in range(length):
        chosen[byte::length] = piece[byte :: length * step]
    return chosen


if __name__ == "__main__":
    sys.exit(main())
