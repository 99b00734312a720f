"""Exact curvature of a sparse graph as a differentiable function of its edge weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.curvature.sparse.ollivier import choose_edges, refuse_mask
from geoattn.curvature.sparse.transport import solve_sparse
from geoattn.curvature.transport import Status
from geoattn.graph.convention import Convention
from geoattn.graph.sparse_build import build_sparse, pull_back_sparse
from geoattn.graph.sparse_inputs import data_weights, is_networkx, read_sparse

__all__ = ["sparse_edge_curvature"]


def sparse_edge_curvature(
    graph: Any, convention: Convention, *, edges: Any, mask: Any, seed: int, threads: int | None
) -> Tensor:
    """Curvatures of the edges that have one, differentiable by the weights of a sparse tensor or of an edge list.

    The gradient of a weight of 0 is 0: such an edge does not exist.
    """
    refuse_mask(mask)
    index, weight, n = _parts(graph)
    return _SparseCurvature.apply(weight, index, n, convention, edges, seed, threads)


def _parts(graph: Any) -> tuple[Tensor, Tensor, int]:
    """edge_index, edge_weight, number of nodes; the weight keeps its way back to the input."""
    if isinstance(graph, Tensor):
        if graph.requires_grad and graph.layout not in (torch.sparse_coo, torch.sparse_csr):
            raise GeoattnError(
                f"to differentiate give a tensor of layout sparse_coo or sparse_csr; got {graph.layout}."
            )
        coo = (graph if graph.layout == torch.sparse_coo else graph.to_sparse_coo()).coalesce()
        return coo.indices(), coo.values(), int(graph.shape[0])
    if isinstance(graph, (tuple, list)):
        index, weight, n = graph
    else:
        index, n = getattr(graph, "edge_index", None), getattr(graph, "num_nodes", None)
        weight = None if index is None else data_weights(graph)
    if not isinstance(index, Tensor) or not isinstance(weight, Tensor) or n is None:
        got, way = type(graph).__name__, ""
        if index is not None:
            got += " without weights" if weight is None else f" with weights of type {type(weight).__name__}"
        if is_networkx(graph):
            way = " Of a networkx graph: torch.from_numpy(networkx.to_numpy_array(graph)).to_sparse()."
        raise GeoattnError(
            "to differentiate give a sparse torch tensor or (edge_index, edge_weight, num_nodes) with torch tensors;"
            f" got {got}.{way}"
        )
    return index, weight, int(n)


class _SparseCurvature(torch.autograd.Function):
    """Forward solves; backward solves again for the flows, which nothing else needs."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, index: Tensor, n: int, convention: Convention, edges: Any, seed: int,
        threads: int | None,
    ) -> Tensor:  # fmt: skip
        weights = read_sparse((index, weight, n), convention)
        graph = build_sparse(weights, convention)
        pairs, entries, _ = choose_edges(graph, weights, edges, seed)
        solved, _ = solve_sparse(graph, pairs, entries, threads=threads)
        kappa = solved.kappa
        ctx.kept = np.isfinite(kappa)
        ctx.floored = solved.status == Status.BELOW_FLOOR
        ctx.state = (weights, graph, pairs, entries, threads, index, weight.dtype)
        dtype = weight.dtype if weight.dtype in (torch.float32, torch.float64) else torch.float32
        return torch.from_numpy(kappa[ctx.kept]).to(weight.device, dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor):
        if torch.is_grad_enabled():  # create_graph=True: silence would be a wrong second derivative
            raise GeoattnError(
                "exact curvature is piecewise smooth and has no second derivative; use create_graph=False."
            )
        weights, graph, pairs, entries, threads, index, dtype = ctx.state
        per_edge = np.zeros(len(ctx.kept))
        per_edge[ctx.kept] = upstream[0].detach().double().cpu().numpy()
        per_edge[ctx.floored] = 0.0
        _, gradients = solve_sparse(graph, pairs, entries, threads=threads, upstream=per_edge)
        assert gradients is not None
        to_weights = weights.rows.with_values(pull_back_sparse(graph, weights, *gradients))
        row, column = index.detach().cpu().numpy()
        gradient = torch.from_numpy(to_weights.at(row, column))
        return gradient.to(upstream[0].device, dtype), *([None] * 6)
