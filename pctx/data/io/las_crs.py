"""The coordinate reference system that a LAS file states, in words. For show: copies keep it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from pctx.data.io.las_file import LAS_MAGIC, read_las_front

_WKT, _GEO_KEYS = 2112, 34735
_PROJECTED, _GEOGRAPHIC = 3072, 2048
"""GeoTIFF 1.0, section 6.2: the keys whose values are EPSG codes."""
_USER_DEFINED = 32767
"""The value for a system of one's own; there are no codes from here on."""


def read_crs(path: Path) -> str | None:
    """Give `EPSG:2154` or the name of the system, or None where the file states none or is no LAS.

    Raises:
        ReadError: its header is corrupt.
    """
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        if stream.read(len(LAS_MAGIC)) != LAS_MAGIC:
            return None
    records = [r for r in read_las_front(path).records if r.user_id == "LASF_Projection"]
    for number, parse in ((_WKT, _of_wkt), (_GEO_KEYS, _of_keys)):
        for record in records:
            if record.record_id == number and (found := parse(record.data)):
                return found
    return None


def _of_wkt(data: bytes) -> str | None:
    text = data.split(b"\0")[0].decode("utf-8", "replace")
    name = re.match(r'\s*\w+\s*\[\s*"([^"]*)"', text)
    # The authority of the whole stands last, behind those of its parts.
    code = re.search(r'(?:AUTHORITY|ID)\[\s*"EPSG"\s*,\s*"?(\d+)"?\s*\]\s*\]\s*$', text)
    if code and not text.lstrip().startswith("COMPD_CS"):
        return f"EPSG:{code[1]}"
    return name[1] if name else None


def _of_keys(data: bytes) -> str | None:
    whole = data[: len(data) // 8 * 8]
    keys = {key: value for key, place, _, value in struct.iter_unpack("<4H", whole) if place == 0}
    for key in (_PROJECTED, _GEOGRAPHIC):
        if 0 < keys.get(key, 0) < _USER_DEFINED:
            return f"EPSG:{keys[key]}"
    return None
