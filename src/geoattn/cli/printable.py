"""Names come from files: what they hold must not reach the terminal as commands to it."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """The text on one line, control characters as ``?``."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
