"""Numbers and lists as a reader wants them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from geoattn.report.estimates import Estimate

__all__ = ["count", "interval", "joined", "number", "percent", "share", "short_count", "signed", "with_interval"]


def number(value: float) -> str:
    """Three decimals, two digits of what is small; a dash for what has no value.

    >>> number(0.38631), number(-12.3), number(0.00047), number(float("nan"))
    ('0.386', '\u221212.3', '0.00047', '\u2013')
    """
    size = abs(value)
    if not math.isfinite(value):
        return "–"
    if size < 1e-6:
        return "0"  # a rounding of the bootstrap, not a finding
    form = ".2g" if size < 0.01 or size >= 1000 else ".3f" if size < 10 else ".1f"
    return f"{value:{form}}".replace("-", "−")


def signed(value: float) -> str:
    """With its sign, always."""
    return ("+" if value > 0 else "") + number(value)


def percent(value: float) -> str:
    """A share in per cent, with as many digits as it needs to be told from 0.

    >>> percent(0.12345), percent(0.00045), percent(0.0)
    ('12.3 %', '0.045 %', '0 %')
    """
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0 %"
    per_cent = 100 * value
    return f"{per_cent:.1f} %" if per_cent >= 0.1 else f"{per_cent:.2g} %"


def count(value: int, noun: str) -> str:
    """How many of what.

    >>> count(1, "layer"), count(1200, "edge")
    ('1 layer', '1,200 edges')
    """
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def short_count(value: int) -> str:
    """Three digits of a large number.

    >>> short_count(950), short_count(1_566_720)
    ('950', '1.57 M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scaled = value / (1e3 if letter == "k" else size)
            return f"{scaled:.3g} {letter}" if scaled < 1000 else f"{scaled:.0f} {letter}"
    return f"{value:,}"


def interval(estimate: Estimate, show: Callable[[float], str] = number) -> str:
    """[low, high], or nothing when there is none."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return ""
    low, high = show(estimate.low), show(estimate.high)
    return f"[{low.removesuffix(' %')}, {high}]"


def with_interval(estimate: Estimate, show: Callable[[float], str] = number) -> str:
    """The value and its interval."""
    return f"{show(estimate.value)} {interval(estimate, show)}".rstrip()


def share(estimate: Estimate) -> str:
    """A share in per cent with its interval."""
    return with_interval(estimate, percent)


def joined(words: Sequence[str]) -> str:
    """Words as a list in a sentence.

    >>> joined(["markov", "hop", "grc-0.6"])
    'markov, hop and grc-0.6'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
