"""`model_smoothness`: how much each attention layer and head of a model amplifies, at real tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from geoattn._core.arguments import read_count
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.attention.linear_layers import LinearLayers
from geoattn.attention.selection import Layers
from geoattn.attention.session import capture
from geoattn.datasets.companions import companions_of
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.feed import feed
from geoattn.datasets.own_data import OwnBatches
from geoattn.datasets.token_limit import Cuts
from geoattn.profiles.batches import Batch, evaluation, read_batch
from geoattn.smoothness.layer_smoothness import LayerSmoothness, layer_smoothness
from geoattn.smoothness.projections import Projections, projections_of
from geoattn.smoothness.result import Convergence

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ModelSmoothness", "SmoothnessPass", "first_samples", "model_smoothness"]


@dataclass(frozen=True, eq=False, repr=False)
class ModelSmoothness(Displayed):
    """Local constants of a model by sample, layer and head; what `model_smoothness` returns.

    ``table`` has a row per sample, layer and head, and one per sample and layer for the layer as a whole, with no
    head: n, radius (largest norm of a token), rms, value (NaN when not converged), residual, status, bound (printed),
    sharper, ratio (value / bound), r2_gamma (of a head). ``calls`` are the results by batch and layer, with the worst
    moves. ``skipped`` says which layers could not be measured, and why.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=2)
    >>> found = ga.model_smoothness(ga.load_model("lvit-digits"), digits, layers="transformer.layers.0*")
    >>> found.layers, len(found.to_pandas()), found.skipped  # a head and the whole layer, of two samples
    (('transformer.layers.0.0',), 4, {})
    >>> found.summary()[["value", "ratio", "samples"]].shape
    (2, 3)
    """

    table: pd.DataFrame
    calls: tuple[LayerSmoothness, ...]
    layers: tuple[str, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def to_pandas(self) -> pd.DataFrame:
        """The table; a copy."""
        return self.table.copy()

    def summary(self) -> pd.DataFrame:
        """Means over the samples by layer and head, with the worst status and the largest relative residual."""
        t: Any = self.table
        t = t.assign(relative=t["residual"] / t["lower"].where(t["lower"] > 0, 1.0))
        groups = t.groupby(["layer", "name", "head"], dropna=False, sort=False)
        named = {
            "value": ("value", "mean"), "largest": ("value", "max"), "bound": ("bound", "mean"),
            "sharper": ("sharper", "mean"), "ratio": ("ratio", "mean"), "r2_gamma": ("r2_gamma", "mean"),
            "relative_residual": ("relative", "max"), "converged": ("converged", "mean"), "samples": ("sample", "size"),
        }  # fmt: skip
        return groups.agg(**named).reset_index()


def model_smoothness(
    model: Any,
    batches: Any,
    *,
    samples: Any = None,
    tokenizer: Any = None,
    column: str | None = None,
    layers: Layers = None,
    whole: bool = True,
    progress: Callable[[float, int | None], object] | None = None,
    **options: Any,
) -> ModelSmoothness:
    r"""Local Lipschitz constants of all attention layers and heads of a model at its own tokens, with bounds.

    A head is measured as :math:`X \mapsto W_h V_h \sum_j P^h_{ij} x_j` at the tokens X that its projections read,
    without residual and norm; the layer as :math:`\sum_h W_h f_h`. See `LayerSmoothness`. A copy of the model runs in
    float64.

    Parameters
    ----------
    model
        Any PyTorch model with self-attention whose queries, keys and values depend on their own token: with biases,
        rotary embeddings, shared key heads, norms of queries; causal or not, padded or not.
    batches, tokenizer, column
        Batches, a `Dataset`, a list of texts or a DataFrame with its ``column``, as in `profile`.
    samples
        At most so many, the first ones; None is all of them.
    layers
        Which modules, by pattern, as in `capture`.
    whole
        Also the layer as a whole: as costly as all of its heads, or more.
    options
        starts, tolerance, iterations, seed: as in `layer_smoothness`.

    Notes
    -----
    Cost per sample and layer: some 20 to 80 steps of O(n^2 d) for two starts; memory O(n d) vectors in groups of half a
    gigabyte.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=4)
    >>> found = ga.model_smoothness(ga.load_model("lvit-digits"), digits)
    >>> len(found.layers), bool((found.table["ratio"] < 1).all())
    (8, True)
    """
    if not isinstance(model, nn.Module):
        raise GeoattnError(f"model must be a torch.nn.Module; got {type(model).__name__}. Load it with ga.load_model.")
    limit = None if samples is None else read_count("samples", samples, least=1)
    total = limit
    if hasattr(batches, "columns") or (
        isinstance(batches, (list, tuple)) and batches and all(isinstance(text, str) for text in batches)
    ):
        companions = companions_of(model, tokenizer, None)
        batches, tokenizer = OwnBatches(batches, companions, column).dataset, companions.tokenizer
    cuts = Cuts(tokenizer, model)
    if isinstance(batches, Dataset):
        total = len(batches) if limit is None else min(limit, len(batches))
        chosen = batches.subset(range(total))
        cuts.count(chosen.texts or ())
        cuts.say()
        batches = feed(chosen, model, tokenizer)
    elif isinstance(batches, (Tensor, dict, str)) or not isinstance(batches, Iterable):
        raise GeoattnError(f"batches must be an iterable of batches or a Dataset; got one {type(batches).__name__}.")
    look = SmoothnessPass(model, layers, whole=whole, **options)
    found: list[tuple[int, int, LayerSmoothness]] = []
    done = 0
    for number, item in enumerate(batches):
        batch = read_batch(item, model, number)
        batch = batch if limit is None else first_samples(batch, limit - done)
        for place, result in look(batch):
            found.append((done, place, result))
        done += batch.size
        if progress is not None:
            progress(done, total)
        if limit is not None and done >= limit:
            break
    if done == 0:
        raise GeoattnError("batches were empty: no sample was seen.")
    if not found:
        raise GeoattnError(f"no layer could be measured. {next(iter(look.skipped.values()), 'No attention ran.')}")
    settings = {"samples": done, "whole": whole, "notes": cuts.notes(), **found[0][2].settings}
    return ModelSmoothness(_table(found), tuple(r for _, _, r in found), tuple(look.names), look.skipped, settings)


class SmoothnessPass:
    """Measures batches on a float64 copy of a model. ``names`` are the layers, ``skipped`` those it cannot measure."""

    def __init__(self, model: nn.Module, layers: Layers = None, *, whole: bool = True, **options: Any) -> None:
        self._model = copy.deepcopy(model).double().requires_grad_(True)
        self._layers, self._whole, self._options = layers, whole, options
        self.names: dict[str, int] = {}
        self.places: dict[tuple[str, int], int] = {}
        self.skipped: dict[str, str] = {}

    def __call__(self, batch: Batch) -> Iterator[tuple[int, LayerSmoothness]]:
        """(number of the layer, result) of each layer that can be measured."""
        for place, p in self.projections(batch):
            yield place, layer_smoothness(p, whole=self._whole, **self._options)

    def projections(self, batch: Batch) -> Iterator[tuple[int, Projections]]:
        """(number of the layer, its projections at the tokens of the batch)."""
        with evaluation(self._model), torch.enable_grad():
            with capture(self._model, layers=self._layers, inputs=True) as record, LinearLayers(self._model) as linear:
                _double(batch).run(self._model)
            modules = {name for name, _ in self._model.named_modules()}
            for call in record:
                inside = call.name if call.name in modules else ""  # attention of the model itself has its class name
                parent = inside.rpartition(".")[0]
                try:
                    if call.shape[0] != batch.size:
                        raise GeoattnError(f"{call.name}: it cuts samples into windows, which is not supported here.")
                    p = projections_of(call, linear.inside(inside, call.visit), linear.inside(parent, call.visit))
                except GeoattnError as error:
                    self.skipped[call.name] = str(error)
                    continue
                label = call.name if call.visit == 0 else f"{call.name} (visit {call.visit + 1})"
                place = self.places.setdefault((call.name, call.visit), len(self.places))
                self.names.setdefault(label, place)
                yield place, p


def first_samples(batch: Batch, count: int) -> Batch:
    """The first samples of a batch."""
    if count >= batch.size:
        return batch

    def cut(value: Any) -> Any:
        return value[:count] if isinstance(value, Tensor) and value.ndim and len(value) == batch.size else value

    kwargs = {name: cut(value) for name, value in batch.kwargs.items()}
    return Batch(tuple(map(cut, batch.args)), kwargs, count, cut(batch.ids), cut(batch.images))


def _double(batch: Batch) -> Batch:
    def to(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return value.detach().double().requires_grad_(True)  # a model may read tokens with its first attention

    kwargs = {name: to(value) for name, value in batch.kwargs.items()}
    return Batch(tuple(map(to, batch.args)), kwargs, batch.size, batch.ids, batch.images)


def _table(found: list[tuple[int, int, LayerSmoothness]]) -> pd.DataFrame:
    import pandas as pd

    rows: list[tuple[Any, ...]] = []
    for first, place, r in found:
        b, h = r.heads.shape
        for s in range(b):
            here = (first + s, place, r.name)
            cloud = (int(r.n[s]), float(r.radius[s]), float(r.rms[s]))
            if np.isfinite(r.lower_whole[s]):
                rows.append((
                    *here, None, *cloud, r.whole[s], r.lower_whole[s], r.whole_residual[s],
                    Convergence(int(r.whole_status[s])).name, r.whole_bound[s], r.whole_sharper[s],
                    r.whole[s] / r.whole_bound[s], np.nan,
                ))  # fmt: skip
            for k in range(h):
                rows.append((
                    *here, k, *cloud, r.heads[s, k], r.lower_heads[s, k], r.residual[s, k],
                    Convergence(int(r.status[s, k])).name, r.bound[s, k], r.sharper[s, k], r.ratio[s, k],
                    r.r2_gamma[s, k],
                ))  # fmt: skip
    names = [
        "sample", "layer", "name", "head", "n", "radius", "rms", "value", "lower", "residual", "status", "bound",
        "sharper", "ratio", "r2_gamma",
    ]  # fmt: skip
    table: Any = pd.DataFrame(rows, columns=pd.Index(names))
    table["head"] = table["head"].astype("Int64")
    table["converged"] = table["status"] == Convergence.CONVERGED.name
    return table.sort_values(["sample", "layer", "head"], kind="stable", na_position="first").reset_index(drop=True)
