"""Clusters of tokens: groups joined by cosines of at least 1 - delta."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.inputs import read_tokens

__all__ = ["cluster_centres", "cluster_count", "cluster_labels"]

_DENSE = 1024  # up to so many tokens all cosines of a run are looked at at once
_BLOCK = 4096


def cluster_labels(tokens: Any, delta: Any = 1e-3) -> Int[Tensor, "*b n"]:
    r"""Label of each token's cluster: 0, 1, ... in the order of their first tokens.

    Two tokens are in one cluster when a chain of tokens with :math:`\langle x, y\rangle \ge 1 - \delta` joins them
    (single linkage). O(n^2 d) time at most, O(n) memory for large n.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import cluster_labels
    >>> cluster_labels(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    tensor([0, 1, 0])
    """
    x = read_tokens(tokens)
    delta = read_number("delta", delta, least=0.0)
    flat = x.reshape(-1, *x.shape[-2:])
    if x.shape[-2] <= _DENSE:
        labels = _joined(flat, delta)
    else:
        labels = torch.stack([_grown(run, delta) for run in flat])
    return labels.reshape(x.shape[:-1])


def cluster_count(tokens: Any, delta: Any = 1e-3) -> Int[Tensor, "*b"]:
    """How many clusters `cluster_labels` finds in each run.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import cluster_count
    >>> cluster_count(torch.eye(4))
    tensor(4)
    """
    return cluster_labels(tokens, delta).amax(-1) + 1


def cluster_centres(tokens: Any, delta: Any = 1e-3) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """(Directions of the mean tokens of the clusters, their shares of all tokens), for one run.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import cluster_centres
    >>> cluster_centres(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    (tensor([[1., 0.],
            [0., 1.]]), tensor([0.6667, 0.3333]))
    """
    x = read_tokens(tokens)
    if x.ndim != 2:
        raise GeoattnError(f"the centres of clusters are those of one run (n, d); got tokens {tuple(x.shape)}.")
    labels = cluster_labels(x, delta)
    members = torch.bincount(labels).to(x)
    sums = torch.zeros(len(members), x.shape[1]).to(x).index_add(0, labels, x)
    return sums / sums.norm(dim=-1, keepdim=True), members / len(x)


def _joined(x: Tensor, delta: float) -> Tensor:
    """All runs as one sparse graph."""
    b, n, _ = x.shape
    labels = np.empty(b * n, dtype=np.int64)
    step = max(1, (1 << 22) // (n * n))
    for start in range(0, b, step):
        part = x[start : start + step]
        run, i, j = ((part @ part.mT) >= 1 - delta).nonzero().cpu().numpy().T
        size = len(part) * n
        graph = coo_array((np.ones(len(i), bool), (run * n + i, run * n + j)), shape=(size, size))
        _, found = connected_components(graph, directed=False)
        labels[start * n : start * n + size] = found
    rows = labels.reshape(b, n)
    return torch.from_numpy(np.stack([_in_order(row) for row in rows]))


def _grown(x: Tensor, delta: float) -> Tensor:
    """One large run: each cluster grows from its first token until nothing is near."""
    labels = torch.full((len(x),), -1, dtype=torch.int64)
    left = torch.arange(len(x))
    count = 0
    while len(left):
        front, left = left[:1], left[1:]
        labels[front] = count
        while len(front) and len(left):
            near = torch.zeros(len(left), dtype=torch.bool)
            for start in range(0, len(front), _BLOCK):
                for other in range(0, len(left), _BLOCK):
                    part = slice(other, other + _BLOCK)
                    cosines = x[left[part]] @ x[front[start : start + _BLOCK]].T
                    near[part] |= (cosines >= 1 - delta).any(-1)
            front, left = left[near], left[~near]
            labels[front] = count
        count += 1
    return labels


def _in_order(row: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(row, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
