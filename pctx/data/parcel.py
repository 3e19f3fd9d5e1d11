"""Parcels: how values full of tensors come from loader processes, each in one block of memory.

Torch hands every tensor over in a file of its own, whose memory is new each time. A plan has a
hundred tensors, and a kernel takes longer to give a page of memory than a copy of it does. Here a
sender writes into files in memory that it has used before, once the receiver has forgotten what was
in them; the receiver maps each of them once, and its tensors lie there.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

_Place: TypeAlias = tuple[int, torch.dtype, torch.Size]
"""Where a tensor starts in the block, and what it is."""

_LINE = 64
"""Bytes: a cache line; tensors start at multiples of it."""
_FREE, _FULL = 0, 1
"""The first byte of a file."""
_KEPT = 32
"""Files that a receiver keeps mapped: four senders' worth."""


@dataclass(frozen=True, eq=False)
class Parcel:
    """What travels in place of a value; unpickled, it is the value itself."""

    frame: bytes
    path: str
    name: str
    size: int

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _open, (self.frame, self.path, self.name, self.size)


class Sender:
    """Packs values into parcels; each is to be opened once, in another process of this machine.

    A file is used anew when all tensors that lay in it are gone.
    """

    def __init__(self) -> None:
        self._files: list[_File] = []
        self._next: _File | None = None
        self._end = _LINE

    def __del__(self) -> None:
        for file in self._files:
            os.close(file.number)

    def empty(self, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Give a tensor to be filled, which `pack` need not copy if it is of the next parcel.

        It lies in memory of its own where the file of the next parcel has no room yet.
        """
        if self._next is None:
            self._next, self._end = self._free_file(), _LINE
        shape = torch.Size(size)
        start, block = self._end, self._next.block
        end = start + shape.numel() * dtype.itemsize
        if end > len(block):
            return torch.empty(shape, dtype=dtype)
        self._end = _next_line(start, end)
        return block[start:end].view(dtype).view(shape)

    def pack(self, value: object) -> Parcel:
        """Copy a value's tensors into a file in memory, the rest into a pickle."""
        frame = io.BytesIO()
        file = self._next or self._free_file()
        dismantler = _Dismantler(frame, file.block, self._end if self._next else _LINE)
        self._next = None
        dismantler.dump(value)
        if len(file.block) < dismantler.end:
            file.grow(dismantler.end * 5 // 4)  # seldom to be mapped anew
        for tensor, start in dismantler.tensors:
            flat = _bytes(tensor)
            file.block[start : start + len(flat)] = flat
        file.block[0] = _FULL
        path = f"/proc/{os.getpid()}/fd/{file.number}"
        return Parcel(frame.getvalue(), path, file.name, len(file.block))

    def _free_file(self) -> _File:
        for file in self._files:
            if file.block[0] == _FREE:
                return file
        self._files.append(_File())
        return self._files[-1]


class _File:
    """A file in memory, a name that no other has, and what is mapped of it."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self.number = os.memfd_create(self.name)
        self.grow(_LINE)

    def grow(self, size: int) -> None:
        """Map the file anew, with more of it; what is in it stays."""
        os.truncate(self.number, size)
        self.block = torch.frombuffer(mmap.mmap(self.number, size), dtype=torch.uint8)


def can_send() -> bool:
    """Whether this system has files in memory that another process can open: Linux does."""
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def pinned(value: Any) -> Any:
    """Copy a value, its tensors into one block of memory that a GPU reads by itself."""
    frame = io.BytesIO()
    dismantler = _Dismantler(frame)
    dismantler.dump(value)
    block = torch.empty(dismantler.end, dtype=torch.uint8, pin_memory=True)
    for tensor, start in dismantler.tensors:
        flat = _bytes(tensor)
        block[start : start + len(flat)] = flat
    return _Assembler(frame.getvalue(), block).load()


def _open(frame: bytes, path: str, name: str, size: int) -> object:
    shared = _mapped(path, name, size)
    # The tensors hold on to the view, and nothing else does.
    view = memoryview(shared)
    weakref.finalize(view, shared.__setitem__, 0, _FREE).atexit = False
    return _Assembler(frame, torch.frombuffer(view, dtype=torch.uint8)).load()


@lru_cache(maxsize=_KEPT)
def _mapped(path: str, name: str, size: int) -> mmap.mmap:
    """Map a file; the name tells it from one that a process before had at this path."""
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), size)


class _Dismantler(pickle.Pickler):
    """Pickles a value, and in place of each tensor its place in the block.

    Args:
        frame: where the pickle goes.
        block: what tensors may lie in already.
        end: where those that do not are to be copied to.
    """

    def __init__(self, frame: io.BytesIO, block: Tensor | None = None, end: int = _LINE) -> None:
        super().__init__(frame, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[tuple[Tensor, int]] = []
        self.places: dict[int, _Place] = {}
        self.block, self.end = block, end

    def persistent_id(self, value: object) -> _Place | None:
        if not isinstance(value, Tensor):
            return None
        if id(value) not in self.places:
            start = self._start(value)
            if start is None:
                start = self.end
                self.tensors.append((value, start))
                self.end = _next_line(start, start + value.numel() * value.itemsize)
            self.places[id(value)] = (start, value.dtype, value.shape)
        return self.places[id(value)]

    def _start(self, tensor: Tensor) -> int | None:
        """Tell where in the block a tensor lies; None if it does not, or not in one piece."""
        if self.block is None or not tensor.is_contiguous():
            return None
        start = tensor.data_ptr() - self.block.data_ptr()
        return start if _LINE <= start < len(self.block) else None


class _Assembler(pickle.Unpickler):
    """Unpickles a value whose tensors lie in a block; one that was there twice is one again."""

    def __init__(self, frame: bytes, block: Tensor) -> None:
        super().__init__(io.BytesIO(frame))
        self.block = block
        self.tensors: dict[_Place, Tensor] = {}

    def persistent_load(self, place: _Place) -> Tensor:
        start, dtype, shape = place
        if place not in self.tensors:
            size = shape.numel() * dtype.itemsize
            self.tensors[place] = self.block[start : start + size].view(dtype).view(shape)
        return self.tensors[place]


def _next_line(start: int, end: int) -> int:
    """Where the next tensor starts: a line further at least, so that no two start together."""
    return start + max(1, -(-(end - start) // _LINE)) * _LINE


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
