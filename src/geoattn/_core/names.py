"""The nearest of known names, for errors that answer a typing mistake."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["did_you_mean"]


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """A question that names the known name nearest to ``name``, with a space before it; empty when none is near.

    Examples
    --------
    >>> did_you_mean("lvit-digit", ["lvit-digits", "bert-tiny"])
    " Did you mean 'lvit-digits'?"
    >>> did_you_mean("Markov", ["markov", "hop"])
    " Did you mean 'markov'?"
    >>> did_you_mean("something else", ["markov", "hop"])
    ''
    """
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""
