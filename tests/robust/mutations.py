"""Ways in which a file goes wrong: by chance, and by lies in the places that readers believe."""

import io
import re
import struct
import zipfile
import zlib
from functools import cache

EXTREMES = (0, 1, 2, 7, 127, 255, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
HUGE = (*EXTREMES, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
ABSURD = (0.0, -0.0, 1e-320, 1e-30, -1e-3, 1e30, 1e300, -1e308, float("inf"), float("nan"))
LARGEST_ARRAYS = 1 << 22
"""Bytes: bombs are not packed anew, which would make large files of them."""
_HEAD = 600
_PAGE, _SUM = 1024, 4


def mutate(data, other, kind, rng):
    """Give a file that went wrong; `other` is another sound one of the same format."""
    own = OWN.get(kind, ())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice((*ANY, *own, *own))
        data = change(data, other, rng) or b"\0"
    if kind == "e57" and rng.random() < 0.9:
        data = with_checksums(data)
    return data


def truncate(data, other, rng):
    return data[
        : rng.choice((rng.randrange(len(data) + 1), rng.randrange(min(len(data), _HEAD) + 1)))
    ]


def flip_bits(data, other, rng):
    out = bytearray(data)
    end = rng.choice((len(out), min(len(out), _HEAD)))
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if end else 0):
        out[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(out)


def lie(data, other, rng):
    """Put an extreme number of 1, 2, 4 or 8 bytes anywhere, most often in the head."""
    size, form = rng.choice(((1, "<B"), (2, "<H"), (4, "<I"), (4, ">I"), (8, "<Q")))
    end = rng.choice((len(data), min(len(data), _HEAD), min(len(data), _HEAD)))
    value = struct.pack(form, rng.choice(HUGE) & (1 << 8 * size) - 1)
    return put(data, rng.randrange(max(end, 1)), value)


def remove(data, other, rng):
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 2, 4, 100, 5000)) :]


def repeat(data, other, rng):
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at : at + rng.choice((1, 4, 100, 5000))] * 2 + data[at:]


def insert(data, other, rng):
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 3, 16, 300))) + data[at:]


def splice(data, other, rng):
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def blank(data, other, rng):
    at, size = rng.randrange(len(data) + 1), rng.choice((8, 64, 4096))
    return put(data, at, rng.choice((b"\0", b"\xff")) * size)


def lie_in_words(data, other, rng):
    """Exchange a whole number of a text, most often in its head."""
    head = data if rng.random() < 0.2 else data[:_HEAD]
    found = list(re.finditer(rb"\d+", head))
    if not found:
        return data
    one = rng.choice(found)
    word = rng.choice((*map(str, HUGE), "-1", "1e9", "9" * 30, "nan", "inf", "1.5", "x", "", "1 2"))
    return data[: one.start()] + word.encode() + data[one.end() :]


def exchange_words(data, other, rng):
    """Exchange two words of the head of a text."""
    found = list(re.finditer(rb"[^\s]+", data[:_HEAD]))
    if len(found) < 2:
        return data
    a, b = sorted(rng.sample(found, 2), key=re.Match.start)
    return data[: a.start()] + b[0] + data[a.end() : b.start()] + a[0] + data[b.end() :]


def absurd_scale(data, other, rng):
    """Scales, offsets and bounds of a LAS header."""
    return put(data, 131 + 8 * rng.randrange(12), struct.pack("<d", rng.choice(ABSURD)))


def las_header(data, other, rng):
    """What a LAS header says of versions, sizes, places and counts, truths of 1.4 included."""
    at, form = rng.choice(
        (
            *((24, "<H"), (94, "<H"), (96, "<I"), (100, "<I"), (104, "<B"), (105, "<H")),
            *((107, "<I"), (227, "<Q"), (235, "<Q"), (243, "<I"), (247, "<Q"), (247, "<Q")),
        )
    )
    size = struct.calcsize(form)
    near = int.from_bytes(data[at : at + size], "little") + rng.choice((-1, 1, 10, 1000))
    value = rng.choice((*HUGE, near, near)) & (1 << 8 * size) - 1
    return put(data, at, struct.pack(form, value))


def las_records(data, other, rng):
    """Bytes behind a LAS header: records, extra dimensions, the record of LASzip, chunks."""
    start = int.from_bytes(data[96:100], "little") if len(data) > 100 else 0
    low, high = (227, start + 40) if rng.random() < 0.6 else (start - 8, start + 80)
    at = rng.randrange(max(low, 0), max(high, low + 1, 1))
    return put(data, at, struct.pack("<I", rng.choice(EXTREMES))[: rng.choice((1, 2, 4))])


def e57_section(data, other, rng):
    """The heads and packets of the points of an E57 file, which stand before its text."""
    text = data.find(b"<?xml")
    size, form = rng.choice(((1, "<B"), (2, "<H"), (4, "<I"), (8, "<Q")))
    value = struct.pack(form, rng.choice((*HUGE, rng.randrange(256))) & (1 << 8 * size) - 1)
    return put(data, rng.randrange(8, min(text, 400) if text > 8 else _HEAD), value)


def bomb(data, other, rng):
    """An archive of zeros, a thousand times as large when unpacked."""
    size, crc, body = zeros(rng.choice((1, 4, 20)) << 20)
    said = rng.choice((size, size, 100, 2**31 - 1))
    name = b"coord.npy"
    sums = struct.pack("<III", crc, len(body), said)
    local = b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 8, 0, 0) + sums
    local += struct.pack("<HH", len(name), 0) + name
    entry = b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 0) + sums
    entry += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
    count = rng.choice((1, 1, 3))
    place = len(local) + len(body)
    end = b"PK\5\6" + struct.pack("<4HIIH", 0, 0, count, count, count * len(entry), place, 0)
    return local + body + entry * count + end


@cache
def zeros(rows):
    """Give the size, the sum and the packed form of an array of zeros (rows, 3)."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 3), }}"
    first = b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(117).encode() + b"\n"
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    crc, body, part = zlib.crc32(first), packer.compress(first), bytes(12 << 16)
    for _ in range(rows >> 16):
        crc, body = zlib.crc32(part, crc), body + packer.compress(part)
    return len(first) + 12 * rows, crc, body + packer.flush()


def repack(data, other, rng):
    """Go wrong in an array of an archive, whose sums are right again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST_ARRAYS:
                return data
            arrays = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return data
    if not arrays:
        return data
    name = rng.choice(list(arrays))
    change = rng.choice((truncate, flip_bits, lie, lie_in_words, npy_header, remove))
    arrays[name] = change(arrays[name], arrays[rng.choice(list(arrays))], rng)
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        for name, array in arrays.items():
            archive.writestr(name, array)
    return out.getvalue()


def npy_header(data, other, rng):
    """What the header of an array says of types and shapes."""
    pairs = (
        (rb"'<?[|a-z]\d+'", ("'<f8'", "'|O'", "'<U99999999'", "'V0'", "'<c16'", "'<M8[s]'")),
        (rb"\(\d+,[^)]*\)", ("()", "(0,)", "(-1, 3)", "(9999999999, 3)", "(1, 2, 3)", "((3,))")),
        (rb"False|True", ("True", "False", "1/0", "[]" * 9, "(" * 40)),
    )  # fmt: skip
    pattern, words = rng.choice(pairs)
    new = rng.choice(words).encode()
    return re.sub(pattern, lambda old: new.ljust(len(old[0])), data, count=1)


def put(data, at, value):
    return data[:at] + value + data[at + len(value) :]


def with_checksums(data):
    """Make the sums of the pages of an E57 file right again."""
    out = bytearray(data)
    for at in range(0, len(out) - _PAGE + 1, _PAGE):
        page = out[at : at + _PAGE - _SUM]
        out[at + _PAGE - _SUM : at + _PAGE] = struct.pack(">I", crc32c(page))
    return bytes(out)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _entry(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_entry, range(256)))

ANY = (truncate, flip_bits, lie, remove, repeat, insert, splice, blank)
WORDS = (lie_in_words, exchange_words)
OWN = {
    "las": (absurd_scale, las_header, las_records),
    "laz": (absurd_scale, las_header, las_records),
    "ply": WORDS,
    "pcd": WORDS,
    "text": WORDS,
    "ptx": WORDS,
    "e57": (*WORDS, e57_section, e57_section),
    "npy": (npy_header,),
    "npz": (repack, repack, repack, bomb),
    "folder": (npy_header,),
    "model": (repack, repack),
}
