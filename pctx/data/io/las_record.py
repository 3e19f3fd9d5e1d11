"""The variable-length records of a LAS file: what stands between its header and its points."""

from __future__ import annotations

import struct
from dataclasses import dataclass

RECORD_HEAD, EXTENDED_HEAD = struct.Struct("<2x16sHH32s"), struct.Struct("<2x16sHQ32s")
"""Tables 5 and 6 of the LAS 1.4 R15 specification: user, number, length, description."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A variable-length record: its header as it stands in the file, and its data."""

    head: bytes
    data: bytes

    @property
    def user_id(self) -> str:
        """Who defined the record, such as LASF_Spec."""
        return self.head[2:18].split(b"\0")[0].decode("latin-1")

    @property
    def record_id(self) -> int:
        """What it holds, a number under that user."""
        return int(struct.unpack_from("<H", self.head, 18)[0])

    @classmethod
    def new(cls, user_id: str, record_id: int, data: bytes, description: str) -> Record:
        """Make a record of at most 65535 bytes."""
        head = RECORD_HEAD.pack(user_id.encode(), record_id, len(data), description.encode())
        return cls(head=head, data=data)

    def with_data(self, data: bytes) -> Record:
        """Give the record with other data and the length of it."""
        head = self.head[:20] + struct.pack("<H", len(data)) + self.head[22:]
        return Record(head=head, data=data)


def split_records(block: bytes, count: int) -> tuple[tuple[Record, ...], bytes]:
    """Split as many records as there are; a count that lies ends with the bytes."""
    records, at = [], 0
    for _ in range(count):
        if at + RECORD_HEAD.size > len(block):
            break
        head = block[at : at + RECORD_HEAD.size]
        end = at + len(head) + struct.unpack_from("<H", head, 20)[0]
        if end > len(block):
            break
        records.append(Record(head=head, data=block[at + len(head) : end]))
        at = end
    return tuple(records), block[at:]
