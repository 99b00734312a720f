"""A training run in one safetensors file: weights, optimiser, random states and position."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.text_files import parse_json
from geoattn._version import __version__
from geoattn.training.handle_states import put_tensors, take_tensors

__all__ = ["Position", "load_checkpoint", "save_checkpoint"]

_KEY = "geoattn-checkpoint"


@dataclass
class Position:
    """Where a run stands: ``batch`` batches of epoch ``epoch`` are done, ``step`` steps in all.

    ``sums`` are running sums of the epoch, ``history`` one row per finished epoch, ``handles`` what the first steps set
    for each regulariser.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False
    handles: list[dict[str, Any]] = field(default_factory=list)


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    position: Position,
    key: str,
    states: Sequence[torch.Tensor] = (),
) -> None:
    """Write all of it, whole or not at all; a checkpoint with weights that are not finite is refused.

    ``states``: random states of all processes; by default that of this one.
    """
    from safetensors.torch import save

    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise GeoattnError(f"weights of {name!r} are not finite; the last good checkpoint is kept.")
    tensors = {f"model/{name}": t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    for index, state in optimiser.state_dict()["state"].items():
        for name, value in state.items():
            tensors[f"optimiser/{index}/{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
    for rank, state in enumerate(states or [torch.get_rng_state()]):
        tensors[f"rng/cpu/{rank}"] = state
    if torch.cuda.is_available():
        tensors["rng/cuda"] = torch.cuda.get_rng_state()
    plain = {
        **vars(position),
        "handles": [put_tensors(f"handle/{k}", h, tensors) for k, h in enumerate(position.handles)],
    }
    tensors = {name: t.clone() for name, t in tensors.items()}  # tied weights: safetensors wants no shared memory
    about = {"position": plain, "key": key, "geoattn": __version__, "torch": str(torch.__version__)}
    data = save(tensors, {_KEY: json.dumps(about, sort_keys=True)})
    write_atomically(path, lambda file: file.write(data))


def load_checkpoint(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, key: str, rank: int = 0
) -> Position:
    """Put weights, optimiser and random states back, in place; the position that they belong to.

    A process of a rank that the run did not have keeps its random state: then dropout is not that of before.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = parse_json((file.metadata() or {}).get(_KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise GeoattnError(f"{path} is not a complete checkpoint ({error}); remove it to start anew.") from None
    if about is None:
        raise GeoattnError(f"{path} is no checkpoint of geoattn; choose another folder.")
    if about["key"] != key:
        raise GeoattnError(f"{path} belongs to a run with other settings; choose another folder, or remove it.")
    model.load_state_dict({n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")})
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser/"):
            _, index, part = name.split("/")
            state.setdefault(int(index), {})[part] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    if f"rng/cpu/{rank}" in tensors:
        torch.set_rng_state(tensors[f"rng/cpu/{rank}"])
    if "rng/cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["rng/cuda"])
    position = Position(**about["position"])
    position.handles = [take_tensors(handle, tensors) for handle in position.handles]
    return position
