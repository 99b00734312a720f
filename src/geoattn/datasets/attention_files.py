"""Attention from .npy, .npz and .safetensors files, as layers of maps. Nothing in a file is ever executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.numpy_files import npz_names, read_npz
from geoattn._core.visible import visible

__all__ = ["AXES", "Layer", "open_attention"]

#: What an axis in front of the two token axes may be.
AXES = ("layer", "sample", "head")

# How the axes are read, by their number, unless the caller names them: attention of one layer has samples and heads.
_MEANINGS = {0: (), 1: ("head",), 2: ("sample", "head"), 3: AXES}


@dataclass(frozen=True)
class Layer:
    """The maps of one layer: (samples, heads, n, n), read from the file when `maps` is called."""

    name: str
    samples: int
    heads: int
    n: int
    axes: tuple[str, ...]
    maps: Callable[[], Any]


@dataclass(frozen=True)
class _Array:
    """One array of a file; `load` may read it anew each time."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Any]


def open_attention(path: str | Path, *, keys: Sequence[str] = (), axes: Sequence[str] | None = None) -> list[Layer]:
    """Layers of an attention file; shapes and dtypes are checked here, values when curvature is computed.

    An array is a layer: (n, n), (head, n, n) or (sample, head, n, n). With five axes it holds several:
    (layer, sample, head, n, n). ``axes`` names the axes in front of the tokens when they mean something else. A .npy
    holds one array, .npz and .safetensors hold one or several. ``keys`` picks arrays by name; without it a .safetensors
    file gives its square tensors.

    >>> from geoattn.datasets import SAMPLE_PATH, open_attention
    >>> layers = open_attention(SAMPLE_PATH, keys=["attention"])
    >>> layers[3].name, layers[3].maps().shape
    ('3', (6, 4, 17, 17))
    """
    path = Path(path)
    readers = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors}
    reader = readers.get(path.suffix.lower())
    if path.is_dir():
        raise GeoattnError(f"{path} is a directory; expected a file: {', '.join(readers)}.")
    if not path.exists():
        raise GeoattnError(f"no such file: {path}.")
    if reader is None:
        raise GeoattnError(f"{path}: expected a file whose name ends in {', '.join(readers)}; got {path.suffix!r}.")
    if not path.is_file():
        raise GeoattnError(f"{path} is not a regular file; copy its content to one.")
    try:
        arrays = reader(path, keys)
    except OSError as error:
        raise GeoattnError(f"cannot read {path}: {error.strerror or error}.") from None
    if not arrays:
        raise GeoattnError(f"{path} holds no array.")
    layers: list[Layer] = []
    for array in arrays:
        prefix = array.name if len(arrays) > 1 else ""
        where = f"{path}, array {array.name[:80]!r}" if array.name else str(path)
        layers += _layers(array, prefix, where, axes)
    return layers


def _layers(array: _Array, prefix: str, where: str, axes: Sequence[str] | None) -> list[Layer]:
    """Split an array along its layers."""
    shape, front = array.shape, array.shape[:-2]
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise GeoattnError(
            f"{where}: attention must have shape (..., n, n); got {shape}. Cross-attention between two"
            " sequences is not a graph on one set of tokens."
        )
    if 0 in shape:
        raise GeoattnError(f"{where}: the array is empty; its shape is {shape}.")
    if shape[-1] < 2:
        raise GeoattnError(f"{where}: attention must have at least two tokens; got shape {shape}.")
    if not (array.dtype.startswith("float") or array.dtype in ("F16", "BF16", "F32", "F64")):
        raise GeoattnError(
            f"{where}: attention must have a floating dtype; got {array.dtype}. Save the softmax weights"
            " themselves, as float32 for example."
        )
    names = tuple(axes) if axes is not None else _MEANINGS.get(len(front))
    if names is None:
        raise GeoattnError(f"{where}: at most three axes (layer, sample, head) before the tokens; got shape {shape}.")
    if len(names) != len(front) or len(set(names)) != len(names) or not set(names) <= set(AXES):
        raise GeoattnError(
            f"{where}: axes must name each of the {len(front)} axes before the tokens of shape {shape}, each"
            f" one of {', '.join(AXES)}; got {', '.join(names) or 'none'}."
        )
    size = {name: front[names.index(name)] if name in names else 1 for name in AXES}
    order = [names.index(name) for name in AXES if name in names]
    full = (size["layer"], size["sample"], size["head"], shape[-1], shape[-1])

    def maps(k: int) -> Any:
        values = array.load()
        axes_in_order = (*order, len(front), len(front) + 1)
        values = values.permute(axes_in_order) if hasattr(values, "permute") else values.transpose(axes_in_order)
        return values.reshape(full)[k]

    rest = tuple(name for name in AXES[1:] if name in names)
    labels = [f"{prefix}/{k}" if prefix else str(k) for k in range(size["layer"])]
    if "layer" not in names:
        labels = [prefix or array.name or "0"]
    return [Layer(label, *full[1:4], rest, lambda k=k: maps(k)) for k, label in enumerate(labels)]


def _read_npy(path: Path, keys: Sequence[str]) -> list[_Array]:
    if keys:
        raise GeoattnError(f"{path}: a .npy file holds one array without a name; leave out the key {keys[0]!r}.")
    _expect_start(path, (b"\x93NUMPY",), "a NumPy array file; write one with numpy.save")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:
        raise _unreadable(path, error) from None
    return [_Array("", array.shape, array.dtype.name, lambda: array)]


def _read_npz(path: Path, keys: Sequence[str]) -> list[_Array]:
    _expect_start(path, (b"PK\x03\x04", b"PK\x05\x06"), "a .npz archive; write one with numpy.savez")

    @lru_cache(maxsize=1)  # the layers of one array follow each other
    def load(name: str) -> np.ndarray:
        return read_npz(path, [name])[name]

    try:
        arrays = []
        for name in _choose(path, npz_names(path), keys):
            array = load(name)  # read in full: a truncated file shows now, not after hours
            arrays.append(_Array(name, array.shape, array.dtype.name, lambda name=name: load(name)))
    except (GeoattnError, OSError):
        raise
    except Exception as error:
        raise _unreadable(path, error) from None
    return arrays


def _read_safetensors(path: Path, keys: Sequence[str]) -> list[_Array]:
    from safetensors import safe_open

    def load(name: str, dtype: str) -> Any:
        # NumPy has no bfloat16: torch reads it, and is not loaded for anything else
        with safe_open(path, framework="pt" if dtype == "BF16" else "np") as file:
            return file.get_tensor(name)

    arrays, others = [], []
    try:
        with safe_open(path, framework="np") as file:
            present = sorted(file.keys())
            for name in _choose(path, present, keys):
                part = file.get_slice(name)
                shape, dtype = tuple(part.get_shape()), str(part.get_dtype())
                if keys or (len(shape) >= 2 and shape[-1] == shape[-2]):
                    arrays.append(_Array(name, shape, dtype, lambda name=name, dtype=dtype: load(name, dtype)))
                else:
                    others.append(f"{visible(name)} {shape}")
    except (GeoattnError, OSError):
        raise
    except Exception as error:
        raise _unreadable(path, error) from None
    if not arrays and others:
        more = ", ..." if len(others) > 5 else ""
        raise GeoattnError(f"{path}: no tensor has shape (..., n, n); got {', '.join(others[:5])}{more}.")
    return arrays


def _choose(path: Path, present: list[str], keys: Sequence[str]) -> list[str]:
    for key in keys:
        if key not in present:
            raise GeoattnError(
                f"{path} has no array {key!r}; it has {', '.join(map(visible, present[:20])) or 'none'}."
            )
    return list(keys) or present


def _expect_start(path: Path, starts: tuple[bytes, ...], what: str) -> None:
    with open(path, "rb") as file:
        head = file.read(8)
    if not head:
        raise GeoattnError(f"{path} is an empty file.")
    if not head.startswith(starts):
        raise GeoattnError(f"{path} is not {what}. It starts with {head!r}.")


def _unreadable(path: Path, error: Exception) -> GeoattnError:
    detail = " ".join(str(error).split()) or type(error).__name__
    if "allow_pickle" in detail or "Python objects" in detail:
        return GeoattnError(f"{path} holds Python objects, which geoattn does not load; save plain float arrays.")
    return GeoattnError(f"{path} is damaged, truncated, or not a {path.suffix} file: {detail}.")
