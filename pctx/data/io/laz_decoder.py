"""Decompressed LAZ points, from a process of their own.

Of corrupt points, lazrs reads beyond its tables: of a thousand damaged files, one ends the
process that reads it. n points of r bytes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pctx.data.io.errors import ReadError

_CHILD = Path(__file__).with_name("laz_child.py")
_PIECE = 1 << 20
"""Bytes that are taken from it at a time."""
ALL_LAYERS = 0xFFFFFFFF
"""The bits of lazrs's `DecompressionSelection`, all set."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """Compressed points.

    Attributes:
        path: the file, and its name in errors.
        body: what is read in place of the file, where it is not as lazrs knows it.
        start: the byte at which the points begin.
        data: the content of the record of LASzip.
        length: r.
        layers: bits of those that are decompressed, of points in layers; the bytes of others are
            of no meaning.
    """

    path: Path
    body: bytes | None = None
    start: int
    data: bytes
    length: int
    layers: int = ALL_LAYERS


def decode(
    encoded: Encoded, first: int, count: int, size: int, step: int = 1
) -> Iterator[np.ndarray]:
    """Decompress points from number `first` on, `size` at a time: each (k, r) uint8.

    Args:
        encoded: where they are.
        first: the number of the first.
        count: how many to go through.
        size: k, but for the last block.
        step: every how manyth is given.

    Raises:
        ReadError: the bytes are cut or corrupt.
    """
    if not count:
        return
    given = -(-count // step)
    with _running(encoded, first, count, step) as (process, output):
        for done in range(0, given, size):
            wanted, block = min(size, given - done) * encoded.length, bytearray()
            while len(block) < wanted:  # it grows: a count that lies reserves nothing
                part = output.read(min(_PIECE, wanted - len(block)))
                if not part:
                    raise ReadError(
                        f"{encoded.path}: its points cannot be decompressed ({_reason(process)})"
                    )
                block += part
            yield np.frombuffer(block, np.uint8).reshape(-1, encoded.length)


@contextmanager
def _running(
    encoded: Encoded, first: int, count: int, step: int
) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    import lazrs

    name = str(encoded.path.absolute()) if encoded.body is None else "-"
    numbers = map(str, (encoded.start, first, count, encoded.length, step, encoded.layers))
    # Isolated: the folder of the program holds names of the standard library's modules.
    program = [sys.executable, "-I", "-S", str(_CHILD), str(Path(lazrs.__file__).parents[1])]
    pipe = subprocess.PIPE
    # Away from signals to all processes of the terminal or of a job: this one minds them, and a
    # training that ends a step first still reads.
    process = subprocess.Popen(
        [*program, name, *numbers], stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        size = len(encoded.data).to_bytes(4, "little")
        process.stdin.write(size + encoded.data + (encoded.body or b""))
        process.stdin.close()
        yield process, process.stdout  # type: ignore[misc]
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def _reason(process: subprocess.Popen[bytes]) -> str:
    """Say what a process that ended early left as its last line."""
    assert process.stderr is not None
    lines = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if process.wait() == 1 and lines else "they are corrupt"
