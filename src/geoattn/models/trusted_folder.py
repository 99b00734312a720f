"""What a folder with a model may hold: settings and numbers. Code, and files that run code, are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.text_files import read_json
from geoattn.models.model_size import check_settings

__all__ = ["check_code", "check_folder", "check_weights", "weight_bytes"]

_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
#: Settings that are read beside the weights.
_SETTINGS = ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json", "generation_config.json")


def check_folder(folder: Path) -> None:
    """A configuration of transformers that names no code of its own; an error of one line otherwise."""
    config = folder / "config.json"
    if not config.is_file():
        raise GeoattnError(
            f"{folder} has no config.json; expected a folder that save_pretrained wrote.{_other_format(folder)}"
        )
    content = _settings(config)
    if not isinstance(content, dict) or "model_type" not in content:
        raise GeoattnError(f"{config} names no model_type, so it is not a configuration of transformers.")
    check_settings(content, str(config))
    if (folder / "adapter_config.json").exists():
        raise GeoattnError(f"{folder} holds an adapter to another model; merge it into the model and save that.")
    check_code(content, str(config))
    for path in (folder / name for name in _SETTINGS):
        try:
            check_code(read_json(path) if path.is_file() else None, str(path))
        except GeoattnError:
            raise
        except (OSError, ValueError):
            pass  # what is no JSON names no code; who needs it says that it cannot be read


def check_code(content: Any, where: str) -> None:
    """An error of one line for settings that name code: ``auto_map``, or attention from a repository.

    >>> check_code({"auto_map": {"AutoModel": "evil.Model"}}, "config.json")
    Traceback (most recent call last):
    geoattn._core.errors.GeoattnError: config.json names code of its own (auto_map), which geoattn does not run. ...
    """
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            names = [name for name in ("auto_map", "custom_pipelines") if value.get(name)]
            names += [n for n, v in value.items() if "attn_implementation" in str(n) and "/" in str(v)]
            if names:
                raise GeoattnError(
                    f"{where} names code of its own ({names[0]}), which geoattn does not run. If transformers knows the"
                    " model without it, remove that entry; else load the model yourself, where you trust it."
                )
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def check_weights(folder: Path) -> None:
    """Weights in safetensors, all of them; an error of one line otherwise."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        content = _settings(index)
        names = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(names, dict):
            raise GeoattnError(f"{index} has no weight_map; get it again.")
        for name in names.values():
            if not isinstance(name, str) or not name.endswith(".safetensors") or os.path.basename(name) != name:
                raise GeoattnError(f"{index} names {str(name)[:60]!r}; only .safetensors files beside it are read.")
    if any(folder.glob("*.safetensors")):
        return
    others = [path.name for path in sorted(folder.iterdir()) if path.suffix in _PICKLED]
    raise GeoattnError(
        f"only safetensors are read, and {folder} has none ({', '.join(others[:10]) or 'no weights at all'}): "
        "save the model with save_pretrained where you trust its files."
    )


def weight_bytes(folder: Path) -> int:
    """Bytes of all the weights of a folder."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors") if path.is_file())


def _other_format(folder: Path) -> str:
    """The way to read a folder of llama2.c, with a space before it; empty for others."""
    if not any(folder.glob("tok*.bin")) or all(path.name.startswith("tok") for path in folder.glob("*.bin")):
        return ""
    return (
        f" Its .bin files look like llama2.c: ga.models.load_llama2c({str(folder)!r}) gives the model and its"
        " tokenizer; on the command line, name a function that returns them, as module:function."
    )


def _settings(path: Path) -> Any:
    try:
        return read_json(path)
    except GeoattnError:
        raise
    except (OSError, ValueError) as error:
        raise GeoattnError(f"{path} is not JSON ({error}).") from None
