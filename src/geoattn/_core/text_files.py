"""Lines of text files, gzipped or not, one at a time, and JSON: no line is endless, no .gz unpacks without a limit."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.read_limit import Budget, check_need, read_limit

__all__ = ["lines_of", "open_bytes", "parse_json", "read_json"]

_LONGEST = 32  # a line may take so small a part of the read limit: parsed as JSON it may grow to 24 times its size


def open_bytes(path: Path) -> Any:
    """A file, unpacked while it is read when its name ends in .gz."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def lines_of(path: Path, *, longest: int | None = None) -> Iterator[str]:
    r"""The lines of a UTF-8 file without ``\n`` or ``\r\n``; an error of one line for one above ``longest`` bytes.

    What a .gz file unpacks to is counted, too: it may be no more than what `allowance` says.
    """
    longest = read_limit() // _LONGEST if longest is None else longest
    packed = Budget(path, "unpacked text")
    number = 0
    with open_bytes(path) as file:
        while line := file.readline(longest + 1):
            number += 1
            packed.spend(len(line) if path.suffix.lower() == ".gz" else 0)
            if len(line) > longest:
                raise GeoattnError(f"{path}, line {number}: a line of more than {longest:,} bytes. Is it a text file?")
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a JSON file; ValueError when it is none, or nested too deep, GeoattnError when it is too large."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        check_need(path, size, "a file of JSON, which grows when it is read", most=read_limit() // _LONGEST)
        return parse_json(file.read(size + 1))


def parse_json(text: str | bytes) -> Any:
    """What the text says; ValueError when it is no JSON, also when it is nested too deep for Python.

    >>> parse_json("[" * 10_000)
    Traceback (most recent call last):
    ValueError: it is nested too deep
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
