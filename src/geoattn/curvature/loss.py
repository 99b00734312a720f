"""Exact curvature as a differentiable function of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn import _native
from geoattn._core.arguments import Count, read_count
from geoattn._core.errors import GeoattnError
from geoattn.curvature.layout import Edges, read_edges
from geoattn.curvature.ollivier import choose_pairs
from geoattn.curvature.transport import Status, solve_pairs
from geoattn.graph.build import build_graphs, pull_back
from geoattn.graph.captured import is_recorded, read_call
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights
from geoattn.graph.shortest_paths import default_threads
from geoattn.graph.sparse_inputs import is_sparse

__all__ = ["STATISTICS", "curvature_loss", "edge_curvature"]

# Types for editors and checkers; at run time the arguments are checked at the door, with an error in words.
if TYPE_CHECKING:
    Attention = Float[Tensor, "*b n n"]
    Statistic = Literal["mean", "variance", "distance_to_one", "negative"]
else:
    Attention = Statistic = Any

STATISTICS = {
    "mean": lambda kappa: kappa.mean(),
    "variance": lambda kappa: kappa.var(correction=0),
    "distance_to_one": lambda kappa: (1 - kappa).abs().mean(),
    "negative": lambda kappa: torch.relu(-kappa).mean(),
}


def curvature_loss(
    attention: Attention,
    convention: str | Convention = "markov",
    *,
    edges: Edges = "all",
    statistic: Statistic = "mean",
    mask: Any = None,
    seed: Count = 0,
    threads: Count | None = None,
) -> Float[Tensor, ""]:
    r"""A statistic of the exact curvature of all graphs, as a scalar with an exact gradient.

    ``mean`` is the mean kappa itself: minimise it to lower curvature, its negative to raise it. ``distance_to_one`` is
    the mean of 1 - kappa, ``variance`` the population variance, ``negative`` the mean of max(0, -kappa).

    The gradient is that of the linear programme's optimum: :math:`\partial W_1/\partial \ell_e = |f_e|` for the optimal
    flow, :math:`\partial W_1/\partial m = \pi` for the optimal potential, :math:`\partial d/\partial \ell_e = 1` on the
    shortest path, pulled back through lengths, measures and the normalisation of rows. Where the optimum is not unique
    (ties of path lengths, masses that cancel exactly, kinks of max and min) it is one generalised gradient, the same
    one each time. Edges without a value (unreachable, distance 0) do not take part; edges below the floor count as 0.

    Forward costs what `ollivier_ricci` costs plus 4 n bytes per edge; backward a small part of it.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> logits = torch.zeros(4, 4, requires_grad=True)
    >>> loss = ga.curvature_loss(logits.softmax(-1))
    >>> loss.backward()
    >>> round(float(loss.detach()), 6), logits.grad.shape
    (1.0, torch.Size([4, 4]))
    """
    if statistic not in STATISTICS:
        raise GeoattnError(f"statistic must be one of {', '.join(STATISTICS)}; got {statistic!r}.")
    kappa = edge_curvature(attention, convention, edges=edges, mask=mask, seed=seed, threads=threads)
    if kappa.numel() == 0:
        raise GeoattnError("curvature_loss: no edge has a value (all masked, unreachable or at distance 0).")
    return STATISTICS[statistic](kappa)


def edge_curvature(
    attention: Attention,
    convention: str | Convention = "markov",
    *,
    edges: Edges = "all",
    mask: Any = None,
    seed: Count = 0,
    threads: Count | None = None,
) -> Float[Tensor, " e"]:
    """The exact curvatures of all edges that have one (or of a sample from each graph), differentiable, graph by graph.

    The result is on the device of the attention and in its dtype, or in float32 for 16-bit attention. `curvature_loss`
    says what the gradient is.

    Examples
    --------
    Raise the curvature of the edge that has the least:

    >>> import torch
    >>> from geoattn.curvature import edge_curvature
    >>> logits = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], requires_grad=True)
    >>> kappa = edge_curvature(logits.softmax(-1))
    >>> kappa.min().backward()
    >>> moved = edge_curvature((logits + 0.1 * logits.grad).softmax(-1))
    >>> kappa.shape, bool(moved.min() > kappa.min())
    (torch.Size([3]), True)
    """
    if is_sparse(attention):
        from geoattn.curvature.sparse.loss import sparse_edge_curvature

        seed = read_count("seed", seed, least=0)
        threads = None if threads is None else read_count("threads", threads, least=1)
        return sparse_edge_curvature(
            attention, Convention.of(convention), edges=edges, mask=mask, seed=seed, threads=threads
        )
    if is_recorded(attention):
        attention, mask = read_call(attention, mask)
    if not isinstance(attention, Tensor):
        raise GeoattnError(f"attention must be a torch tensor to differentiate; got {type(attention).__name__}.")
    sample, seed = read_edges(edges), read_count("seed", seed, least=0)
    threads = default_threads() if threads is None else read_count("threads", threads, least=1)
    return _ExactCurvature.apply(attention, Convention.of(convention), sample, mask, seed, threads)


class _ExactCurvature(torch.autograd.Function):
    """Forward solves and keeps the optimal trees; backward turns them into gradients."""

    @staticmethod
    def forward(
        ctx: Any, attention: Tensor, convention: Convention, sample: int | None, mask: Any, seed: int, threads: int
    ):
        weights = read_weights(attention, convention, mask)
        rows = weights.chunk(0, len(weights.flat))
        graphs = build_graphs(rows, convention)
        _, pairs, offsets, _ = choose_pairs(graphs, sample, seed, 0)
        solved = solve_pairs(graphs, pairs, offsets, threads=threads, trees=attention.requires_grad)
        kappa = solved.kappa
        ctx.kept = np.isfinite(kappa)
        ctx.state = (weights, rows, graphs, solved, threads, attention.shape, attention.dtype)
        dtype = attention.dtype if attention.dtype in (torch.float32, torch.float64) else torch.float32
        return torch.from_numpy(kappa[ctx.kept]).to(attention.device, dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor):
        if torch.is_grad_enabled():  # create_graph=True: silence would be a wrong second derivative
            raise GeoattnError(
                "exact curvature is piecewise smooth and has no second derivative; use create_graph=False."
            )
        weights, rows, graphs, solved, threads, shape, dtype = ctx.state
        per_edge = np.zeros(len(ctx.kept))
        per_edge[ctx.kept] = upstream[0].detach().double().cpu().numpy()
        per_edge[solved.status == Status.BELOW_FLOOR] = 0.0
        to_lengths, to_measures = np.zeros_like(graphs.lengths), np.zeros_like(graphs.lengths)
        _native.pull_back(
            np.ascontiguousarray(graphs.lengths), np.ascontiguousarray(graphs.measures), solved.pairs, solved.offsets,
            solved.w1, solved.denominator, solved.distance, solved.status, solved.trees, per_edge, to_lengths,
            to_measures,
            directed=graphs.convention.directed, per_length=graphs.convention.denominator == "length",
            idle=solved.idle, threads=threads,
        )  # fmt: skip
        gradient = weights.pull_back(rows, pull_back(graphs, to_lengths, to_measures))
        return torch.from_numpy(gradient).reshape(shape).to(upstream[0].device, dtype), *([None] * 5)
