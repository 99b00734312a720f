"""Mutations that know a little of the formats: lengths, numbers, tags, lines, and what other files are made of."""

from __future__ import annotations

import re
import struct
import zlib
from random import Random

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_VALUES = (
    b"0", b"-1", b"1e309", b"NaN", b"nan", b"-0.0", b"2147483648", b"18446744073709551616", b"1e-320", b"99999999999",
    b"null", b"true", b'""', b"[]", b"{}", b"0x10", b"1_000", "٣".encode(),
)  # fmt: skip
_PIECES = (
    b"\0", b"\xff", b"\n", b"\r", b",", b'"', b"[", b"{", b"<", b"&", b"#", b"\x1b[31m", b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    "\u2028".encode(), b"../", b"%s", b"PK\3\4", b"PK\5\6", b"\x93NUMPY", b"PAR1", b"<!ENTITY a 'b'>", b"&a;", b"O8",
    b"|O", b"descr", b"'shape': (9999999999,)", b"auto_map", b"__class__",
)  # fmt: skip
_SIZES = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def mutate(data: bytes, others: list[bytes], random: Random) -> bytes:
    """A file after one to six small changes; sometimes what is packed inside it is changed instead."""
    if random.random() < 0.15 and (inner := _inside(data, others, random)) is not None:
        return inner
    for _ in range(1 + int(random.expovariate(0.7)) % 6):
        data = random.choice(_CHANGES)(data, others, random)
    return data[: 1 << 20]


def _inside(data: bytes, others: list[bytes], random: Random) -> bytes | None:
    """The content of a gzip file, changed and packed again."""
    if not data.startswith(b"\x1f\x8b"):
        return None
    try:
        content = zlib.decompress(data, 31)
    except zlib.error:
        return None
    pack = zlib.compressobj(1, zlib.DEFLATED, 31)
    return pack.compress(mutate(content, others, random)) + pack.flush()


def _flip(data: bytes, _: list[bytes], random: Random) -> bytes:
    if not data:
        return b"\0"
    k = random.randrange(len(data))
    return data[:k] + bytes([data[k] ^ 1 << random.randrange(8)]) + data[k + 1 :]


def _byte(data: bytes, _: list[bytes], random: Random) -> bytes:
    k = random.randrange(len(data) + 1)
    return data[:k] + bytes([random.randrange(256)]) + data[k + 1 :]


def _cut(data: bytes, _: list[bytes], random: Random) -> bytes:
    a, b = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return random.choice((data[:a], data[a:], data[:a] + data[b:]))


def _copy(data: bytes, _: list[bytes], random: Random) -> bytes:
    a, b = sorted(random.randrange(len(data) + 1) for _ in range(2))
    k = random.randrange(len(data) + 1)
    return data[:k] + data[a:b][:5000] * random.choice((1, 1, 2, 50)) + data[k:]


def _insert(data: bytes, _: list[bytes], random: Random) -> bytes:
    k = random.randrange(len(data) + 1)
    return data[:k] + random.choice(_PIECES) * random.choice((1, 1, 1, 3, 200)) + data[k:]


def _number(data: bytes, others: list[bytes], random: Random) -> bytes:
    """Another number, where the file has one in words."""
    places = list(_NUMBER.finditer(data[:100_000]))
    if not places:
        return _size(data, others, random)
    one = random.choice(places)
    return data[: one.start()] + random.choice(_VALUES) + data[one.end() :]


def _size(data: bytes, _: list[bytes], random: Random) -> bytes:
    """Another length, where the file may have one in bytes."""
    form = random.choice(("<H", "<I", "<Q", ">H", ">I", ">Q"))
    width = struct.calcsize(form)
    k = random.randrange(max(1, len(data) - width))
    value = random.choice(_SIZES) + random.choice((-1, 0, 1))
    return data[:k] + struct.pack(form, value % 2 ** (8 * width)) + data[k + width :]


def _splice(data: bytes, others: list[bytes], random: Random) -> bytes:
    other = random.choice(others)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _lines(data: bytes, _: list[bytes], random: Random) -> bytes:
    lines = data.split(b"\n")
    random.shuffle(lines) if random.random() < 0.3 else lines.append(random.choice(lines))
    return b"\n".join(lines)


_CHANGES = (_flip, _flip, _byte, _cut, _copy, _insert, _insert, _number, _number, _size, _size, _splice, _lines)
