"""How much memory the content of a file may take: the one ceiling that all readers share.

A file may take four times its size on the disk, or the read limit, whichever is more. The limit is 2 GB unless the
environment variable ``GEOATTN_READ_LIMIT`` says otherwise; ``geoattn --read-limit`` sets it for one command.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["LIMIT_VARIABLE", "Budget", "allowance", "check_need", "memory_of", "read_limit"]

#: Environment variable with the limit: a number of bytes, or one with kB, MB, GB or TB.
LIMIT_VARIABLE = "GEOATTN_READ_LIMIT"
_DEFAULT = 2 * 10**9
_FACTOR = 4
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def read_limit() -> int:
    """The limit in bytes.

    >>> os.environ[LIMIT_VARIABLE] = "8 GB"
    >>> read_limit()
    8000000000
    >>> del os.environ[LIMIT_VARIABLE]
    >>> read_limit()
    2000000000
    """
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return _DEFAULT
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?)\s*([a-z]*)", text.lower())
    if found is None or found[2] not in _UNITS or not (limit := int(float(found[1]) * _UNITS[found[2]])):
        raise GeoattnError(f"{LIMIT_VARIABLE} must be a number of bytes, such as 8GB; got {text[:40]!r}.")
    return limit


def allowance(path: Any = None) -> int:
    """What the content of a file may take: four times its size on the disk, or the limit; without a file the limit."""
    try:
        return max(read_limit(), 0 if path is None else _FACTOR * os.stat(path).st_size)
    except (OSError, ValueError, TypeError):
        return read_limit()


def check_need(path: Any, need: int, what: str, *, most: int | None = None) -> None:
    """An error of one line when ``need`` bytes are more than the file may take; ``what`` says of what they are.

    >>> check_need("a.npz", 10**12, "an array of 1,000,000 x 1,000,000 bytes")
    Traceback (most recent call last):
    geoattn._core.errors.GeoattnError: a.npz asks for 1,000 GB of memory (an array ... bytes); the limit is 2 GB. ...
    """
    most = allowance(path) if most is None else most
    if need > most:
        raise GeoattnError(
            f"{path} asks for {_human(need)} of memory ({what}); the limit is {_human(most)}. If you trust the file,"
            f" set {LIMIT_VARIABLE}={_human(2 * need).replace(' ', '').replace(',', '')}."
        )


class Budget:
    """What is left of the allowance of a file while it is read piece by piece.

    >>> budget = Budget("a.jsonl.gz", "its lines", most=100)
    >>> budget.spend(60)
    >>> budget.spend(60)
    Traceback (most recent call last):
    geoattn._core.errors.GeoattnError: a.jsonl.gz asks for more than 0.1 kB of memory (its lines); ...
    """

    def __init__(self, path: Any, what: str, *, most: int | None = None) -> None:
        self.path, self.what, self.spent = path, what, 0
        self.most = allowance(path) if most is None else most

    def spend(self, size: int) -> None:
        """Count so many bytes; an error of one line when they are too many."""
        self.spent += size
        if self.spent > self.most:
            raise GeoattnError(
                f"{self.path} asks for more than {_human(self.most)} of memory ({self.what}); that is the limit. If you"
                f" trust the file, set {LIMIT_VARIABLE} to more, such as 8GB."
            )


def memory_of(value: Any) -> int:
    """Bytes that a plain value of Python takes, with all that is in it.

    >>> memory_of({"a": [1.5, "text"]}) > memory_of({"a": 1.5}) > 0
    True
    """
    total, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        total += sys.getsizeof(one) + 8
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple)):
            waiting += one
    return total


def _human(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if size >= scale:
            return f"{round(size / scale, 1):,g} {unit}" if size < 1000 * scale else f"{size // scale:,} {unit}"
    return f"{round(size / 1000, 1):g} kB"
