"""What the first steps set for each regulariser, as a file: gamma of a strength, and the means behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.text_files import parse_json

__all__ = ["load_states", "put_tensors", "save_states", "take_tensors"]

_KEY = "geoattn-regularisers"


def save_states(path: Path, states: list[dict[str, Any]]) -> None:
    """Write the states of handles, whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "regularisers.safetensors")
    >>> save_states(path, [{"strength": {"gamma": 0.5}}])
    >>> load_states(path)
    [{'strength': {'gamma': 0.5}}]
    """
    from safetensors.torch import save

    tensors: dict[str, torch.Tensor] = {}
    plain = put_tensors("handle", states, tensors)
    data = save({name: t.clone() for name, t in tensors.items()}, {_KEY: json.dumps(plain, sort_keys=True)})
    write_atomically(path, lambda file: file.write(data))


def load_states(path: Path) -> list[dict[str, Any]]:
    """What `save_states` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            plain = parse_json((file.metadata() or {}).get(_KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise GeoattnError(f"{path} does not hold the states of regularisers ({error}); remove it.") from None
    if not isinstance(plain, list):
        raise GeoattnError(f"{path} does not hold the states of regularisers; remove it.")
    return take_tensors(plain, tensors)


def put_tensors(name: str, value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Plain values; each tensor among them goes to ``tensors`` and leaves its name."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        return {key: put_tensors(f"{name}/{key}", part, tensors) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [put_tensors(f"{name}/{k}", part, tensors) for k, part in enumerate(value)]
    return value


def take_tensors(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The tensors by their names put back."""
    if isinstance(value, dict):
        if set(value) == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: take_tensors(part, tensors) for key, part in value.items()}
    return [take_tensors(part, tensors) for part in value] if isinstance(value, list) else value
