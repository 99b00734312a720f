"""Curvature of files of attention maps, layer by layer: check all layers, solve them, keep a summary of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.curvature.result import Curvature
from geoattn.curvature.transport import Status
from geoattn.datasets.attention_files import Layer
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LayerCurvature", "check_layers", "edge_total", "solve_layers"]

_CHECKED_BYTES = 32 << 20  # of float64 values in one step of the check


@dataclass(frozen=True)
class LayerCurvature:
    """What is left of a layer when its maps are gone."""

    name: str
    summary: dict[str, Any]
    heads: list[dict[str, Any]]  # empty when the heads were averaged
    values: list[np.ndarray]  # finite curvatures by head, for the histogram; empty unless edges are kept
    table: pd.DataFrame | None
    settings: dict[str, Any]


def edge_total(layers: Sequence[Layer], convention: Convention, edges: Any) -> int:
    """At most so many edges, for the progress bar."""
    total = 0
    for layer in layers:
        graphs = layer.samples * (1 if convention.heads == "mean" else layer.heads)
        most = layer.n * (layer.n - 1) // (1 if convention.directed else 2)
        total += graphs * (most if edges == "all" else min(most, edges))
    return total


def check_layers(layers: Sequence[Layer], convention: Convention, mask: Any) -> None:
    """Every value of every layer, before any edge is solved: a bad last layer shows now, not after hours."""
    for layer in layers:
        if convention.heads == "mean" and "head" not in layer.axes:
            raise GeoattnError(f"layer {layer.name} has no axis of heads, which --heads mean needs.")
        with _named(layer):
            weights = read_weights(_maps(layer), convention, _fit(mask))
            group = layer.heads if convention.heads == "mean" else 1  # what is averaged stays together
            step = max(1, _CHECKED_BYTES // (8 * layer.n**2 * group)) * group
            for start in range(0, layer.samples * layer.heads, step):
                weights.chunk(start, start + step)


def solve_layers(
    layers: Sequence[Layer],
    convention: Convention,
    *,
    edges: Any,
    mask: Any,
    tolerance: float,
    threads: int | None,
    seed: int,
    keep_edges: bool,
    progress: Callable[[int], object],
) -> list[LayerCurvature]:
    """Curvature of all layers, in order."""
    solved: list[LayerCurvature] = []
    before = 0
    for layer in layers:
        with _named(layer), warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # the table has a line for it
            result = ollivier_ricci(
                _maps(layer), convention, edges=edges, mask=_fit(mask), tolerance=tolerance, threads=threads, seed=seed,
                progress=lambda done, _, base=before: progress(base + done),
            )  # fmt: skip
        before += edge_total([layer], convention, edges)
        heads = _heads(result)
        solved.append(
            LayerCurvature(
                layer.name,
                result.summary(),
                [_head_summary(head) for head in heads],
                [head.values() for head in heads or [result]] if keep_edges else [],
                _table(result, layer.name) if keep_edges else None,
                result.settings,
            )
        )
    return solved


def _maps(layer: Layer) -> Any:
    """(1, samples, heads, n, n): with three axes in front errors speak of layer, sample and head."""
    return layer.maps()[None]


def _fit(mask: Any) -> Any:
    """(n,), (samples, n) or (samples, heads, n) -> the axes of `_maps`."""
    return mask if mask is None or mask.ndim < 2 else mask[None]


@contextmanager
def _named(layer: Layer) -> Iterator[None]:
    """Errors inside it speak of the layer by its own name."""
    try:
        yield
    except GeoattnError as error:
        message = str(error)
        if "layer 0, " in message:  # the place as `_maps` gives it
            where, _, rest = message.partition(" (index ")
            message = where.replace("layer 0, ", f"layer {layer.name}, ", 1) + rest.partition("))")[2]
        else:
            message = f"layer {layer.name}: {message}"
        raise GeoattnError(message) from None


def _heads(result: Curvature) -> list[Curvature]:
    """The result of each head over all samples; nothing when the heads were averaged."""
    if len(result.shape) < 5:
        return []
    fields = ("kappa", "w1", "distance", "gap", "status")
    shape = result.shape[:2] + result.shape[3:]
    parts = []
    for head in range(result.shape[2]):
        if result.index is None:
            arrays = {name: getattr(result, name)[:, :, head] for name in fields}
            missing = np.isin(arrays["status"], (Status.NO_EDGE, Status.MISSING_TOKEN))
            edges = int((~missing).sum()) // (1 if result.convention.directed else 2)
            parts.append(replace(result, **arrays, shape=shape, edges=edges))
        else:
            mine = result.index[:, 2] == head
            arrays = {name: getattr(result, name)[mine] for name in fields}
            index = np.delete(result.index[mine], 2, axis=1)
            parts.append(replace(result, **arrays, shape=shape, index=index, edges=0))
    return parts


def _head_summary(head: Curvature) -> dict[str, Any]:
    summary = head.summary()
    if head.index is not None:
        del summary["edges"]  # a sample knows the edges of the layer, not of one head
    return summary


def _table(result: Curvature, name: str) -> pd.DataFrame:
    """One row per edge, the layer by its name; tokens and places small, for many edges."""
    import pandas as pd

    table = result.to_pandas(("layer", "sample", "head")[: len(result.shape) - 2])  # heads may have been averaged
    table["layer"] = pd.Categorical([name] * len(table), categories=[name])
    for column in ("sample", "head", "i", "j"):
        if column in table:
            table[column] = table[column].astype("int32")
    table["status"] = table["status"].astype("category")
    return table
