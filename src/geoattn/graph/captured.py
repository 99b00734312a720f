"""A call of a record as attention with its mask."""

from __future__ import annotations

from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["is_recorded", "read_call"]


def is_recorded(attention: Any) -> bool:
    """Whether it is a `Call` or a `Record` of a capture; torch is not imported for this."""
    return type(attention).__module__.startswith("geoattn.attention.")


def read_call(call: Any, mask: Any) -> tuple[Any, Any]:
    """Maps (b, h, n, n) of a call, with their gradient, and its mask of real tokens unless one is given."""
    if type(call).__name__ != "Call":
        names = f"record[0] is {call.names[0]!r}" if getattr(call, "names", None) else "for example record[0]"
        raise GeoattnError(f"a whole {type(call).__name__} was given; give one of its calls: {names}.")
    if call.kind == "cross" or call.shape[2] != call.shape[3]:
        raise GeoattnError(
            f"{call.name!r} is {call.kind}-attention of {call.shape[2]} queries on {call.shape[3]} keys, which is not a"
            " graph on one set of tokens."
        )
    valid = call.valid.cpu().numpy()
    return call.attention(), valid if mask is None else mask
