"""The small fields of a LAS point that are mostly 0: its flags, user data and place in a waveform.

n points. Tables 7 to 17 of the LAS 1.4 R15 specification.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_OLD = {
    "scan_direction_flag": ("returns", 6, 1),
    "edge_of_flight_line": ("returns", 7, 1),
    "synthetic": ("class", 5, 1),
    "key_point": ("class", 6, 1),
    "withheld": ("class", 7, 1),
    "user_data": ("user", 0, 8),
}
_NEW = {
    "synthetic": ("flags", 0, 1),
    "key_point": ("flags", 1, 1),
    "withheld": ("flags", 2, 1),
    "overlap": ("flags", 3, 1),
    "scanner_channel": ("flags", 4, 2),
    "scan_direction_flag": ("flags", 6, 1),
    "edge_of_flight_line": ("flags", 7, 1),
    "user_data": ("user", 0, 8),
}
"""The byte of a field, its first bit in it, and how many it has; before and from format 6 on."""
_WAVE = np.dtype(
    [
        *(("wavepacket_index", "u1"), ("wavepacket_offset", "<u8"), ("wavepacket_size", "<u4")),
        *(("return_point_wave_location", "<f4"), ("x_t", "<f4"), ("y_t", "<f4"), ("z_t", "<f4")),
    ]
)
NAMES = frozenset(_NEW)
"""The fields that every new file has."""


def flag_columns(points: np.ndarray) -> dict[str, np.ndarray]:
    """Give the fields (n,) by laspy's names, without those that are 0 throughout.

    Args:
        points: (n,) with the fields of a point format.
    """
    names = points.dtype.names or ()
    found = {
        name: points[byte] >> first & (1 << bits) - 1
        for name, (byte, first, bits) in (_NEW if "flags" in names else _OLD).items()
    }
    if "wave" in names:
        wave = np.ascontiguousarray(points["wave"]).view(_WAVE)
        found |= {name: wave[name].copy() for name in _WAVE.names or ()}
    return {name: column for name, column in found.items() if column.any()}


def set_flags(points: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
    """Write fields (n,) into points of a format from 6 on whose flags are 0; others are cut."""
    for name in NAMES & set(columns):
        byte, first, bits = _NEW[name]
        whole = np.nan_to_num(columns[name].astype(np.float64), posinf=0, neginf=0)
        points[byte] |= np.clip(whole, 0, (1 << bits) - 1).astype(np.uint8) << first
