"""Names come from files: what they hold must not reach the terminal as commands to it."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, *, keep_blanks: bool = False) -> str:
    """The text on one line, control characters as ``?``; blanks as they are, or each run of them as one."""
    return "".join(c if c.isprintable() else "?" for c in (text if keep_blanks else " ".join(text.split())))
