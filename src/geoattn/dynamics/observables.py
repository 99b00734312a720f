"""Numbers that say how ordered tokens are: polarisation, nematic order, histogram of cosines."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_count
from geoattn.dynamics.clusters import cluster_count
from geoattn.dynamics.inputs import read_tokens

__all__ = ["OBSERVABLES", "cosine_histogram", "nematic", "polarisation"]

_MOST_PAIRS = 1 << 22  # above, a seeded sample of so many pairs


def polarisation(tokens: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b"]:
    """|mean of the tokens|: 1 for one cluster, about 1/sqrt(n) for uniform tokens, 0 for a balanced antipodal pair.

    Examples
    --------
    >>> polarisation(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor(0.7071)
    """
    return tokens.mean(-2).norm(dim=-1)


def nematic(tokens: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b"]:
    """Largest eigenvalue of the second moment: the share on the best axis, 1 for an antipodal pair, 1/d for uniform.

    Examples
    --------
    >>> nematic(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor(1.)
    """
    moment = tokens.mT @ tokens / tokens.shape[-2]
    return torch.linalg.eigvalsh(moment)[..., -1]


def cosine_histogram(tokens: Any, bins: Any = 50, *, seed: Any = 0) -> Float[Tensor, "*b bins"]:
    """Share of the pairs i < j with their cosine in each of equal bins from -1 to 1; it sums to one.

    All pairs of up to about 2,900 tokens; of more, a seeded sample of four million.

    Examples
    --------
    >>> cosine_histogram(torch.eye(3), bins=4)
    tensor([0., 0., 1., 0.])
    """
    x = read_tokens(tokens)
    bins, n = read_count("bins", bins, least=1), x.shape[-2]
    read_count("number of tokens for a histogram of pairs", n, least=2)
    flat = x.reshape(-1, n, x.shape[-1])
    draw = torch.Generator().manual_seed(read_count("seed", seed, least=0))
    out = []
    for run in flat:
        if n * (n - 1) // 2 <= _MOST_PAIRS:
            i, j = torch.triu_indices(n, n, 1)
            cosines = (run @ run.T)[i, j]
        else:
            i = torch.randint(n, (_MOST_PAIRS,), generator=draw)
            j = (i + torch.randint(1, n, (_MOST_PAIRS,), generator=draw)) % n
            cosines = (run[i] * run[j]).sum(-1)
        # not torch.histc, whose edges round differently from bin to bin
        place = ((cosines.double() + 1) / 2 * bins).long().clamp(0, bins - 1)
        out.append(torch.bincount(place, minlength=bins).to(x.dtype) / len(cosines))
    return torch.stack(out).reshape(*x.shape[:-2], bins)


#: Name -> function of tokens (..., n, d) that gives one number, or one row of numbers, for each run.
OBSERVABLES = {
    "polarisation": polarisation,
    "nematic": nematic,
    "clusters": cluster_count,
    "histogram": cosine_histogram,
}
