"""Names of the axes before the tokens."""

from __future__ import annotations

from collections.abc import Sequence

from geoattn._core.errors import GeoattnError

__all__ = ["name_axes"]

_NAMES = {0: (), 1: ("graph",), 2: ("sample", "head"), 3: ("layer", "sample", "head")}


def name_axes(count: int, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """The given names, or the usual ones: attention of one layer is (sample, head, n, n).

    Examples
    --------
    >>> name_axes(2), name_axes(2, ("layer", "head")), name_axes(4)
    (('sample', 'head'), ('layer', 'head'), ('axis_0', 'axis_1', 'axis_2', 'axis_3'))
    """
    if given is None:
        return _NAMES.get(count) or tuple(f"axis_{k}" for k in range(count))
    names = (given,) if isinstance(given, str) else tuple(given)
    if len(names) != count or len({*names, "i", "j"}) != count + 2 or not all(isinstance(name, str) for name in names):
        expected = f"{count} different name{'s' if count != 1 else ''}, other than i and j"
        raise GeoattnError(f"axes must hold {expected}: one for each axis before the tokens; got {given!r}.")
    return names
