"""Attention geometry as features: one row a sample, one column a layer, head and statistic."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geoattn._core.arguments import Count, read_count
from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn.attention.selection import Layers
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.datasets.companions import companions_of
from geoattn.datasets.own_data import OwnBatches
from geoattn.graph.convention import Convention
from geoattn.profiles.batches import evaluation, read_batch
from geoattn.profiles.examples import Examples
from geoattn.profiles.lenses.sink_mass import SinkMassLens
from geoattn.profiles.lenses.spectrum import SpectrumLens
from geoattn.profiles.lenses.weights import WeightsLens
from geoattn.profiles.means import MeanLens, Means, Moments
from geoattn.profiles.pieces import SINKS, Piece
from geoattn.profiles.run import LayerKey, Viewer
from geoattn.profiles.special import Special

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["features"]

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


class _CurvatureOfSample(MeanLens):
    """Distance to one, negative share and quantiles of each map, from all its edges or from a draw."""

    name = "curvature"

    def __init__(self, rule: Convention, edges: int, threads: int | None, seed: int) -> None:
        super().__init__(resamplings=1, seed=seed)
        self.rule, self.edges, self.threads = rule, edges, threads

    def measure(self, piece: Piece) -> Moments:
        b, h, n = piece.valid.shape
        names = ("distance_to_one", "negative_share", *(f"q{round(100 * q):02d}" for q in _LEVELS))
        totals = {name: np.zeros((b, h)) for name in names}
        counts = np.zeros((b, h))
        for s in range(b):  # one by one: the draw depends on the sample, not on its batch
            seed = int(np.random.SeedSequence([self.seed, piece.layer, piece.first + s]).generate_state(1)[0]) % 2**31
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DegenerateCurvatureWarning)
                found = ollivier_ricci(
                    piece.attention[s : s + 1], self.rule, mask=piece.valid[s : s + 1], threads=self.threads,
                    edges="all" if n * (n - 1) // 2 <= self.edges else self.edges, seed=seed,
                )  # fmt: skip
            place, kappa = found.places(), found.column("kappa")
            for k in range(h):
                own = kappa[(place[:, 1] == k) & np.isfinite(kappa)]
                if len(own):
                    counts[s, k] = 1
                    values = [1 - own.mean(), (own < 0).mean(), *np.quantile(own, _LEVELS)]
                    for name, value in zip(names, values, strict=True):
                        totals[name][s, k] = value
        return Moments(counts, totals)


class _LaplacianOfSample(MeanLens):
    r"""The largest eigenvalues of the attention Laplacian :math:`L = D - A`, D the mean weight that a token gets.

    For causal attention L is triangular, and its eigenvalues are its diagonal, :math:`\bar A_j - A_{jj}` with
    :math:`\bar A_j` the mean of column j over the rows that see it, as LapEigvals takes them (Binkowski et al. 2025).
    For other maps the same diagonal is taken: it is then no eigenvalue, but the same feature.
    """

    name = "laplacian"

    def __init__(self, count: int) -> None:
        super().__init__(resamplings=1)
        self.count = count

    def measure(self, piece: Piece) -> Moments:
        weights = piece.attention.double().cpu()
        valid = torch.from_numpy(piece.valid)
        n = valid.shape[-1]
        later = (weights > 0).triu(1).flatten(-2).any(-1, keepdim=True)  # some token is seen by one before it
        rows = valid.flip(-1).cumsum(-1).flip(-1)  # from each token on, without padding
        seen = torch.where(later, valid.sum(-1, keepdim=True), rows).clamp_min(1).double()
        degree = (weights * valid[..., None]).sum(-2) / seen
        diagonal = torch.where(valid, degree - weights.diagonal(dim1=-2, dim2=-1), -torch.inf)
        top = diagonal.sort(-1, descending=True).values[..., : self.count]
        top = torch.nn.functional.pad(top, (0, max(0, self.count - n)), value=-torch.inf)
        top = torch.where(top.isfinite(), top, 0.0)
        alive = (valid.sum(-1) > 0).double().numpy()
        return Moments(alive, {f"eigenvalue{k}": top[..., k].numpy() for k in range(self.count)})


class _SinkOfSample(SinkMassLens):
    """The same, by the name that the columns have."""

    name = "sinks"


def features(
    model: Any,
    batches: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    column: str | None = None,
    convention: str | Convention = "markov",
    layers: Layers = None,
    edges: Count = 64,
    eigenvalues: Count = 5,
    sink: Any = "renormalise",
    threads: Count | None = None,
    seed: Count = 0,
    progress: Callable[[int], object] | None = None,
) -> pd.DataFrame:
    r"""One row a sample, one column a layer, head and statistic: what a classifier or a regression can start from.

    Parameters
    ----------
    model, batches, tokenizer, processor, column, layers
        As in `profile`.
    convention
        Of the curvature.
    edges
        How many edges of each map are drawn, by ``seed`` and the number of the sample; small maps have all of theirs.
    eigenvalues
        How many diagonal entries of the attention Laplacian are kept, the largest ones.
    sink
        As in `profile`; by default rows that sum to less than one are divided by their sums.

    Returns
    -------
    pandas.DataFrame
        float32, with columns ``layer.head.lens.statistic`` such as ``L03.H07.curvature.q05``: distance_to_one,
        negative_share and five quantiles of the curvature; row_entropy, self_weight and variance of the weights;
        first_token and heaviest_token; second_eigenvalue, smallest_eigenvalue, dobrushin and irreversibility of the
        Markov chain; the eigenvalues of the Laplacian. The last column, ``tokens``, is the length of the sample: use it
        as a control. NaN where a sample has no such map.

    Notes
    -----
    Cost: one forward pass per batch, and ``edges`` exact transport problems per map.

    Examples
    --------
    >>> import geoattn as ga
    >>> table = ga.features(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=3))
    >>> table.shape, sorted(table.columns)[0]
    ((3, 169), 'L00.H0.curvature.distance_to_one')
    """
    import pandas as pd

    companions = companions_of(model, tokenizer, processor)
    model = companions.model
    if sink not in SINKS:
        raise GeoattnError(f"sink must be one of {', '.join(map(repr, SINKS))}; got {sink!r}.")
    seed = read_count("seed", seed, least=0)
    threads = None if threads is None else read_count("threads", threads, least=1)
    lenses: list[MeanLens] = [
        _CurvatureOfSample(Convention.of(convention), read_count("edges", edges, least=1), threads, seed),
        WeightsLens(resamplings=1),
        _SinkOfSample(resamplings=1),
        SpectrumLens(threads=threads, resamplings=1),
        _LaplacianOfSample(read_count("eigenvalues", eigenvalues, least=1)),
    ]
    for lens in lenses:
        lens.fold = False
    viewer = Viewer(model, layers, Special(False), lenses, Examples(0), sink)
    source = OwnBatches(batches, companions, column)
    known: dict[LayerKey, int] = {}
    rows: list[dict[str, float]] = []
    with evaluation(model):
        for number, item in enumerate(source):
            batch = read_batch(item, model, number)
            part = viewer.see(batch, len(rows), known)
            known = part.layers
            lengths = part.tokens
            rows.extend({} for _ in range(batch.size))
            for (name, _), layer in part.layers.items():
                if max(part.numbers.get(layer, {0})) >= len(rows):
                    raise GeoattnError(
                        f"{name} attends over more images than there are samples, so that a row a sample does not hold"
                        " them; choose layers= that attend over the samples."
                    )
            for (layer, k), state in part.states.items():
                for sample, name, value in _values(state, layer, lenses[k].name):
                    rows[sample][name] = value
            for sample, length in lengths.items():
                rows[sample]["tokens"] = float(length)
            if progress is not None:
                progress(len(rows))
    if not rows:
        raise GeoattnError("batches were empty: no sample was seen.")
    if not known:
        raise GeoattnError("no self-attention over two or more tokens ran in the chosen layers.")
    table: Any = pd.DataFrame(rows).astype(np.float32)
    order = sorted((name for name in table.columns if name != "tokens"), key=_place)
    return table[[*order, "tokens"]]


def _values(state: Means, layer: int, lens: str) -> Iterator[tuple[int, str, float]]:
    width = len(str(state.heads - 1))
    for sample, statistics in state.waiting.items():
        for statistic, (total, count) in statistics.items():
            for head in np.flatnonzero(count):
                yield sample, f"L{layer:02d}.H{head:0{width}d}.{lens}.{statistic}", float(total[head] / count[head])


def _place(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))
