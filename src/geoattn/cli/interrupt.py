"""Ctrl-C within a second, whatever the kernel is doing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["handled_interrupt", "prompt_interrupt"]

_GRACE = 0.6  # seconds the kernel has to stop by itself


@contextmanager
def prompt_interrupt() -> Iterator[None]:
    """Inside it Ctrl-C raises KeyboardInterrupt, and the process ends soon even if nobody can handle that.

    The kernel looks for signals between steps, and one step on thousands of tokens may take many seconds. Use
    it around computation only, never around writing: the process may end here without any clean-up.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    timers: list[threading.Timer] = []

    def on_signal(number: int, frame: Any) -> None:
        timer = threading.Timer(_GRACE, _leave)
        timer.daemon = True
        timer.start()
        timers.append(timer)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for timer in timers:
            timer.cancel()


def handled_interrupt() -> None:
    """Tell Python that Ctrl-C was dealt with: `python -m geoattn` would else end by the signal instead of with a code.

    That happens when the signal came while a string was executed, as dataclasses do. Python remembers it, whoever
    catches the exception, until the next string is executed.
    """
    exec("")


def _leave() -> None:
    show_cursor = b"\r\x1b[2K\x1b[?25h" if sys.stderr.isatty() else b""  # a progress bar hides it
    os.write(2, show_cursor + b"geoattn: interrupted\n")
    os._exit(130)
