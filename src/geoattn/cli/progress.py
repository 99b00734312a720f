"""A progress bar with the time left, on stderr, for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

__all__ = ["LateProgress"]

_PATIENCE = 1.0  # seconds before the bar appears


class LateProgress:
    """Call `update` as often as you like; shows nothing for short work or when stderr is not a terminal."""

    def __init__(self, total: int, label: str, unit: str = "edges", period: float = 30.0) -> None:
        self._total, self._label, self._unit = max(total, 1), label, unit
        self._period = period  # seconds over which the speed is estimated: longer for steps that take minutes
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> LateProgress:
        """Start the clock."""
        self._show_at = time.monotonic() + _PATIENCE if sys.stderr.isatty() else float("inf")
        return self

    def update(self, done: int | float, total: int | None = None) -> None:
        """So many of the total are done; ``total`` renews what was said at the start."""
        if total is not None and total != self._total:
            self._total = max(total, 1)
            if self._bar is not None:
                self._bar.update(self._task, total=self._total)
        if self._bar is None:
            if time.monotonic() < self._show_at:
                return
            self._start()
        assert self._bar is not None
        self._bar.update(self._task, completed=min(done, self._total))

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(f"{self._unit},"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=Console(stderr=True), transient=True, speed_estimate_period=self._period,
        )  # fmt: skip
        self._task = self._bar.add_task(self._label, total=self._total)
        self._bar.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
