"""Text from outside: tokens, labels and names may be hostile, endless or empty."""

from __future__ import annotations

import html
import json
import math
from typing import Any

import numpy as np
from markupsafe import Markup

from geoattn._core.visible import visible

__all__ = ["json_for_script", "plotly_text", "visible"]


def plotly_text(text: object, longest: int = 40) -> str:
    """The text for a label of Plotly, which reads tags and entities."""
    return html.escape(visible(text, longest), quote=False)


def json_for_script(value: Any) -> Markup:
    r"""JSON that can stand inside a script element: no character of it can end the element or a line.

    >>> print(json_for_script({"token": "</script>", "kappa": float("nan")}))
    {"token":"\u003c/script\u003e","kappa":null}
    """
    form: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": True, "allow_nan": False}
    try:
        text = json.dumps(value, default=_plain, **form)
    except (TypeError, ValueError):  # NaN in a list, or a key that is no text: the slow way
        text = json.dumps(_plain(value), **form)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _plain(value: Any) -> Any:
    """Python's own types, with None for what is not a number."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return _plain(value.tolist())
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
