"""How far a piece of work is, when it is done in parts that each know only how far they are themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["Progress", "guarded", "in_parts"]

#: Called with (done, total), done rising from 0 to total.
Progress = Callable[[float | int, float | int], object]


def guarded(progress: Any) -> Any:
    """A callback of the user whose own errors say whose they are; None stays None.

    >>> guarded(lambda done, total: 1 / 0)(1, 2)
    Traceback (most recent call last):
    geoattn._core.errors.GeoattnError: progress= raised ZeroDivisionError: division by zero. The work was given up.
    """
    if progress is None:
        return None
    if not callable(progress):
        raise GeoattnError(f"progress must be a function of (done, total), or None; got {type(progress).__name__}.")

    def tell(*arguments: Any) -> object:
        try:
            return progress(*arguments)
        except Exception as error:
            raise GeoattnError(f"progress= raised {type(error).__name__}: {error}. The work was given up.") from error

    return tell


def in_parts(progress: Progress | None, sizes: Iterable[float | int]) -> list[Progress]:
    """One callback for each part; each tells ``progress`` how far the whole is. Sizes are estimates of the work.

    Parts are done one after the other. A part may be cut into parts again.

    >>> first, second = in_parts(lambda done, total: print(f"{done:g} of {total:g}"), (3, 1))
    >>> first(1, 2)
    1.5 of 4
    >>> second(5, 5)
    4 of 4
    """
    sizes = list(sizes)
    total = sum(sizes)

    def part(before: float | int, size: float | int) -> Progress:
        def tell(done: float | int, of: float | int) -> None:
            if progress is not None:
                progress(before + size * (done / of if of else 1.0), total)

        return tell

    return [part(sum(sizes[:k]), size) for k, size in enumerate(sizes)]
