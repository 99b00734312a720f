"""How far a piece of work is, when it is done in parts that each know only how far they are themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["Progress", "in_parts"]

#: Called with (done, total), done rising from 0 to total.
Progress = Callable[[float | int, float | int], object]


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
