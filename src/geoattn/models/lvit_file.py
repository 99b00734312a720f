"""An L-ViT in one safetensors file: weights, configuration, and how it was made."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.text_files import parse_json
from geoattn._version import __version__
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.models.model_size import check_settings, check_size

__all__ = ["load_lvit", "read_notes", "save_lvit"]

_KEY = "lvit"  # one key: safetensors writes several in no fixed order, and equal models should be equal files


def save_lvit(model: LViT, path: str | os.PathLike[str], **notes: Any) -> None:
    """Write the weights and the configuration of an L-ViT.

    ``notes`` (accuracy, recipe, ...) are kept with them as JSON; `read_notes` reads them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from geoattn.models import LViT, load_lvit, read_notes, save_lvit
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save_lvit(LViT(), path, test_accuracy=0.1)
    >>> load_lvit(path).config.depth, read_notes(path)["test_accuracy"]
    (8, 0.1)
    """
    from safetensors.torch import save

    tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    about = {"config": model.config.as_dict(), "notes": notes, "geoattn": __version__}
    data = save(tensors, {_KEY: json.dumps(about, sort_keys=True)})
    write_atomically(path, lambda file: file.write(data))


def load_lvit(path: str | os.PathLike[str]) -> LViT:
    """Read a file that `save_lvit` wrote. The model is in evaluation mode. Weights that do not fit are an error.

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> from geoattn.models import LViT, load_lvit, save_lvit
    >>> path, model = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors", LViT()
    >>> save_lvit(model, path)
    >>> torch.equal(load_lvit(path).state_dict()["pos_embedding"], model.state_dict()["pos_embedding"])
    True
    """
    tensors, about = _open(path)
    check_settings(about["config"], str(path))
    config = LViTConfig.from_dict(about["config"])
    check_size(lambda: LViT(config), path)
    model = LViT(config)
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    wrong = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
    if wrong:
        name = min(wrong)
        raise GeoattnError(
            f"{path}: {len(wrong)} weights do not fit the configuration in the file; first {name}: "
            f"expected {wanted.get(name, 'nothing')}, got {found.get(name, 'nothing')}. Save the model again."
        )
    model.load_state_dict(tensors)
    return model.eval()


def read_notes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The notes that `save_lvit` wrote with a model.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from geoattn.models import LViT, read_notes, save_lvit
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save_lvit(LViT(), path, seed=3)
    >>> read_notes(path)
    {'seed': 3}
    """
    return _open(path)[1]["notes"]


def _open(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise GeoattnError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise GeoattnError(f"{path} is not a complete safetensors file ({error}); get it or make it again.") from None
    if text is None:
        raise GeoattnError(
            f"{path} has no L-ViT configuration in it; expected a file that save_lvit wrote. "
            "For another model give the folder with its config.json and model.safetensors."
        )
    try:
        about = parse_json(text)
        if not isinstance(about["config"], dict) or not isinstance(about["notes"], dict):
            raise ValueError("config and notes expected")
    except (ValueError, KeyError, TypeError) as error:
        raise GeoattnError(f"{path}: the configuration in it cannot be read ({error}); make it again.") from None
    return tensors, about
