"""Text from outside on one line: tokens, labels and names may be hostile, endless or empty."""

from __future__ import annotations

import unicodedata

__all__ = ["visible"]

# Overrides and isolates could turn the text around them, too.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: object, longest: int = 40) -> str:
    r"""The text on one line, with nothing in it that cannot be seen; cut after ``longest`` characters, and says so.

    >>> visible("a\n<b>"), visible(""), visible("x" * 10_000, 12)
    ('a␣<b>', '(empty)', 'xxxxxxxxxxxx… (10,000 characters)')
    """
    text = str(text)
    cut = text[: longest + 1]
    shown = "".join(_seen(c) for c in cut[:longest])
    if not shown:
        return "(empty)"
    return shown if len(text) <= longest else f"{shown}\u2026 ({len(text):,} characters)"


def _seen(character: str) -> str:
    if character in "\t\n\r":
        return "\u2423"
    # Controls, surrogates without a partner, separators of lines and paragraphs
    if character in _TURNING or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return "\ufffd"
    return character
