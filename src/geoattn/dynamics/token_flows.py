"""Tokens of a real model, layer by layer, beside the flow that starts at the same tokens."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.stats import wasserstein_distance
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed, Viewable
from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn._core.few_threads import few_threads
from geoattn._version import __version__
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.dynamics.clusters import cluster_count
from geoattn.dynamics.inputs import read_tokens
from geoattn.dynamics.observables import cosine_histogram
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.trajectory import Trajectory
from geoattn.graph.convention import Convention

if TYPE_CHECKING:
    import pandas as pd

    from geoattn.attention.call import Call

__all__ = ["TokenFlow", "TokenPath", "layer_tokens", "token_flow"]

_LARGEST_BETA = 1e4
_LOOKS = 8  # moments of the flow for each layer, among which the nearest is looked for
_ALL_EDGES, _SOME_EDGES = 65, 128
_STEP = 0.25  # over the root of beta: the error of a step of order 4 is then below 1e-5
_LONGER = 4  # the flow is followed so many times as long as the model is deep


@dataclass(frozen=True, repr=False)
class TokenPath(Displayed):
    """Tokens (k, n, d) at k moments, and at each: the histogram of cosines, their mean, clusters, mean curvature."""

    tokens: Float[Tensor, "k n d"]
    histogram: Float[np.ndarray, "k bins"]
    mean_cosine: Float[np.ndarray, " k"]
    clusters: Int[np.ndarray, " k"]
    curvature: dict[str, Float[np.ndarray, " k"]]


@dataclass(frozen=True, repr=False)
class TokenFlow(Viewable):
    """The model and the flow at the same moments: layer k is at the time k times ``step``.

    ``distance`` is the W1 distance between the cosines of layer k and those of the flow at that time, ``stay`` that of
    layer k and the start: a flow that says something about the model has the smaller one. ``nearest_time`` is the time
    at which the flow is nearest to layer k, ``nearest`` how near. ``settings`` hold beta and how it was chosen.
    ``run`` is the whole flow, with eight moments between two layers.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> model, images = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=1).pixels()
    >>> with ga.capture(model, inputs=True) as record, torch.no_grad():
    ...     _ = model(images)
    >>> flow = ga.dynamics.token_flow(record)
    >>> len(flow.names), len(flow.distance)
    (8, 8)
    """

    names: tuple[str, ...]
    t: Float[np.ndarray, " k"]
    model: TokenPath
    flow: TokenPath
    distance: Float[np.ndarray, " k"]
    stay: Float[np.ndarray, " k"]
    nearest_time: Float[np.ndarray, " k"]
    nearest: Float[np.ndarray, " k"]
    run: Trajectory
    settings: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What the result shows of itself."""
        facts = {name: self.settings[name] for name in ("n", "d", "layers", "beta", "causal") if name in self.settings}
        for kind, path in (("model", self.model), ("flow", self.flow)):
            facts[f"mean cosine, {kind}"] = f"{path.mean_cosine[0]:.4g} to {path.mean_cosine[-1]:.4g}"
        return facts | {"distance at the end": float(self.distance[-1]), "of staying": float(self.stay[-1])}

    def to_pandas(self) -> pd.DataFrame:
        """One row per layer."""
        import pandas as pd

        columns: dict[str, Any] = {"layer": range(len(self.names)), "name": self.names, "t": self.t}
        for kind, path in (("model", self.model), ("flow", self.flow)):
            columns |= {f"{kind}_mean_cosine": path.mean_cosine, f"{kind}_clusters": path.clusters}
            columns |= {f"{kind}_curvature_{name}": values for name, values in path.curvature.items()}
        for name in ("distance", "stay", "nearest_time", "nearest"):
            columns[name] = getattr(self, name)
        return pd.DataFrame(columns)


def token_flow(
    record: Any,
    sample: Any = 0,
    *,
    beta: Any = None,
    step: Any = 1.0,
    convention: str | Convention | Sequence[str | Convention] = "markov",
    edges: Any = "auto",
    delta: Any = 0.1,
    bins: Any = 50,
) -> TokenFlow:
    r"""Tokens of a model beside the flow of equation 14 of the Ricci paper, Q = K = V = I, from the same start.

    Token inputs of each attention layer are divided by their norms. The flow is
    :math:`\dot x_i = P^\perp \sum_j \mathrm{softmax}_j(\beta \langle x_i, x_j\rangle) x_j`, with a causal mask if the
    model has one. The model has weights of its own, an MLP and many heads; how far the flow is from it is what the
    result says.

    Parameters
    ----------
    record
        Of `capture` with ``inputs=True``: one forward pass.
    sample
        Its number in the batch. Padding is left out.
    beta
        Inverse temperature. None: that at which the rows of the flow's first attention have the mean entropy of the
        model's first layer.
    step
        Time between two layers.
    convention
        Of the curvature of the model's maps (mean over edges and heads) and of the flow's; one or several.
    edges
        ``"auto"``: all edges of up to 65 tokens, 128 of each map of more. ``"all"``, or a number.
    delta
        Tokens with a cosine of at least 1 - delta are in one cluster.

    Notes
    -----
    Cost: O(L n^2 d) for the flow, and `ollivier_ricci` on L (h + 1) maps for each convention.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> from geoattn.dynamics import token_flow
    >>> model, images = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=1).pixels()
    >>> with ga.capture(model, inputs=True) as record, torch.no_grad():
    ...     _ = model(images)
    >>> result = token_flow(record)
    >>> len(result.names), result.model.tokens.shape
    (8, torch.Size([8, 17, 64]))
    >>> bool(abs(result.model.mean_cosine[0] - result.flow.mean_cosine[0]).max() < 1e-9)  # the same start
    True
    """
    calls = _self_attention(record)
    step, bins = read_number("step", step, above=0.0), read_count("bins", bins, least=1)
    chosen = [convention] if isinstance(convention, (str, Convention)) else list(convention)
    conventions = [Convention.of(c) for c in chosen]
    tokens = layer_tokens(record, sample)
    k, n, _ = tokens.shape
    if n < 3:
        raise GeoattnError(f"sample {sample} has {n} tokens; a flow of fewer than 3 has nothing to show.")
    with few_threads(n * n * tokens.shape[-1]):
        keep = calls[0].valid[sample]
        maps = [call.attention(sample=sample)[0][:, keep][:, :, keep].detach().double().cpu() for call in calls]
        causal = all(bool((m.triu(1) == 0).all()) for m in maps)
        entropy = float(_entropy(maps[0]).mean())
        how = "given" if beta is not None else "mean row entropy of the first layer"
        beta = _matching_beta(tokens[0], causal, entropy) if beta is None else read_number("beta", beta)
        if isinstance(edges, str) and edges == "auto":
            edges = "all" if n <= _ALL_EDGES else _SOME_EDGES
        t = step * np.arange(k)
        looks = _LONGER * max(1, k - 1) * _LOOKS
        until = max(step, _LONGER * t[-1])
        long = simulate(
            tokens[0], beta=beta, causal=causal, until=until, observe=(), save=looks + 1,
            step=min(until / looks, _STEP / math.sqrt(max(1.0, beta))),
        )  # fmt: skip
        at = np.arange(k) * _LOOKS
        flow = long.tokens[at]
        flow_maps = [_attention(x, beta, causal)[None] for x in flow]
        cosines = [_cosines(x) for x in tokens]
        all_flow = [_cosines(x) for x in long.tokens]
        apart = np.array([[wasserstein_distance(c, f) for f in all_flow] for c in cosines])
        settings = {
            "n": n, "d": tokens.shape[-1], "layers": k, "sample": int(sample), "beta": beta, "beta_from": how,
            "entropy": entropy, "causal": causal, "step": step, "delta": float(delta), "edges": edges,
            "geoattn": __version__,
        }  # fmt: skip
        return TokenFlow(
            tuple(call.name for call in calls), t, _path(tokens, maps, conventions, edges, delta, bins),
            _path(flow, flow_maps, conventions, edges, delta, bins), distance=apart[np.arange(k), at], stay=apart[:, 0],
            nearest_time=long.t.numpy()[apart.argmin(1)], nearest=apart.min(1), run=long, settings=settings,
        )  # fmt: skip


def layer_tokens(record: Any, sample: Any = 0) -> Float[Tensor, "k n d"]:
    """Token inputs of the self-attention layers of one sample, divided by their norms, float64, without padding.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> layer = torch.nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True).eval()
    >>> with ga.capture(layer, inputs=True) as record, torch.no_grad():
    ...     _ = layer(torch.randn(2, 5, 8))
    >>> layer_tokens(record, 1).shape
    torch.Size([1, 5, 8])
    """
    calls = _self_attention(record)
    sample = read_count("sample", sample, least=0)
    if sample >= calls[0].shape[0]:
        raise GeoattnError(f"the record has samples 0 to {calls[0].shape[0] - 1}; got {sample}.")
    keep = calls[0].valid[sample]
    rows = [call.tokens[sample][keep].detach().double().cpu() for call in calls]
    shapes = {tuple(row.shape) for row in rows}
    if len(shapes) > 1:
        raise GeoattnError(f"all layers must have tokens of one shape; got {sorted(shapes)}.")
    return read_tokens(torch.stack(rows), normalise=True)


def _self_attention(record: Any) -> list[Call]:
    calls = [call for call in record if call.kind == "self" and call.shape[2] == call.shape[3]]
    if not calls:
        raise GeoattnError("the record has no self-attention over one set of tokens.")
    if len({call.shape[:1] + call.shape[2:] for call in calls}) > 1:
        raise GeoattnError("the layers see different numbers of tokens or samples; capture one forward pass.")
    return calls


def _attention(x: Tensor, beta: float, causal: bool) -> Float[Tensor, "n n"]:
    logits = beta * (x @ x.T)
    if causal:
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -math.inf)
    return logits.softmax(-1)


def _entropy(a: Tensor) -> Tensor:
    return torch.special.entr(a).sum(-1)


def _matching_beta(x: Tensor, causal: bool, entropy: float) -> float:
    """Entropy falls as beta grows; 0 or the largest beta when the tokens cannot have such an entropy."""

    def gap(beta: float) -> float:
        return float(_entropy(_attention(x, beta, causal)).mean()) - entropy

    if gap(0.0) <= 0:
        return 0.0
    if gap(_LARGEST_BETA) >= 0:
        return _LARGEST_BETA
    return float(brentq(gap, 0.0, _LARGEST_BETA, xtol=1e-9))  # pyright: ignore[reportArgumentType]


def _cosines(x: Float[Tensor, "n d"]) -> Float[np.ndarray, " pairs"]:
    i, j = torch.triu_indices(len(x), len(x), 1)
    return (x @ x.T)[i, j].numpy()


def _path(
    x: Tensor, maps: list[Tensor], conventions: list[Convention], edges: Any, delta: Any, bins: int
) -> TokenPath:  # fmt: skip
    curvature = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateCurvatureWarning)
        for c in conventions:
            values = [ollivier_ricci(m.numpy(), c, edges=edges).values() for m in maps]
            curvature[c.name] = np.array([float(v.mean()) if len(v) else math.nan for v in values])
    return TokenPath(
        x, cosine_histogram(x, bins).numpy(), np.array([float(_cosines(y).mean()) for y in x]),
        cluster_count(x, delta).numpy(), curvature,
    )  # fmt: skip
