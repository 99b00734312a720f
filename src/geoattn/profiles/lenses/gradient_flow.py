"""The lens of the flow: how far the matrices of each head are from those of a gradient flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.gradient_shares import GradientShare, gradient_share
from geoattn.profiles.batches import Batch
from geoattn.profiles.lens import Lens, LensSettings, Row, register_lens
from geoattn.profiles.means import Means, mean_rows
from geoattn.profiles.own_pass import OwnPassLens, finite_moments
from geoattn.smoothness.projections import Projections

__all__ = ["GradientFlowLens", "head_flow", "head_shares"]

_NOT_SQUARE = "no output projection was found, so that V is no square matrix"
STATISTICS = ("gradient_share", "metric_share", "explained", "symmetry", "alignment")


def head_flow(p: Projections, sample: int, head: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""(Unit tokens, D, V) of a head as a flow on the sphere with weights :math:`e^{x_i \cdot D x_j}` on :math:`V x_j`.

    D = R^2 Q^T K with the scale of the logits in it and V = R W V of the head, R the root mean square of the norms of
    the tokens; W is the identity for a single head without an output projection. Biases are left out, turns by place
    (rotary embeddings) are those at equal places, and there is no mask: D and V alone decide whether there is an
    energy.
    """
    if not _is_square(p):
        raise GeoattnError(f"{p.name}: {_NOT_SQUARE}.")
    x = p.tokens[sample] if p.mask is None else p.tokens[sample][p.mask[sample]]
    norms = x.norm(dim=-1, keepdim=True)
    if bool((norms == 0).any()):
        raise GeoattnError(f"{p.name}: a token is zero and has no direction.")
    radius = norms.square().mean().sqrt()
    D = radius**2 * p.query[head].mT @ p.key[head]
    V = radius * (p.value[head] if p.output is None else p.output[head] @ p.value[head])
    return x / norms, D, V


def head_shares(p: Projections, sample: int, head: int, *, probes: int = 64, seed: int = 0) -> dict[str, float]:
    """The statistics of the lens of one head at the tokens of one sample."""
    x, D, V = head_flow(p, sample, head)
    round_: GradientShare = gradient_share(x, D, V, probes=probes, seed=seed)
    metric = gradient_share(x, D, V, probes=probes, seed=seed, norm="mobility", fit=False)
    explained = float(np.clip(1 - round_.residual, 0.0, 1.0))  # NaN stays NaN
    numbers = (round_.share, metric.share, explained, round_.symmetry, round_.alignment)
    return dict(zip(STATISTICS, numbers, strict=True))


class GradientFlowLens(OwnPassLens):
    """Shares of a gradient flow, from a pass of its own in float64, over the first samples of a profile.

    ``gradient_share`` and ``metric_share`` are those of `gradient_share` with the norms ``round`` and ``mobility``;
    ``explained`` is one minus the residual there, and 0 when no energy is better than no motion; ``symmetry`` and
    ``alignment`` are as there. See `head_flow` for what D and V of a head are. Layers whose
    heads are no such maps are left out, or have NaN, and the profile says so.
    """

    name = "gradient_flow"

    def look(self, batch: Batch) -> Iterator[tuple[int, Projections]]:
        """Projections of the layers at the tokens of the batch."""
        return self._pass.projections(batch)

    def state(self, found: Projections, numbers: np.ndarray) -> Means:
        """Means over samples, of each statistic over the heads that have it."""
        if not _is_square(found):
            self._pass.skipped[found.name] = _NOT_SQUARE
        b, h = found.q.shape[:2]
        values = {name: np.full((b, h), np.nan) for name in STATISTICS}
        for s in range(b):
            for head in range(h):
                for name, value in _shares_or_none(found, s, head, self._seed).items():
                    values[name][s, head] = value
        means = self._means(h)
        for name, grid in values.items():
            means.add(numbers, slice(0, h), finite_moments({name: grid}))
        return means

    def merge(self, one: Means, other: Means) -> Means:
        """Both together."""
        return one.merge(other)

    def rows(self, states: Sequence[Means], heads: slice, level: float) -> Iterator[Row]:
        """Means over samples with intervals."""
        yield from mean_rows(states, heads, level)

    def resampled(self, state: Means) -> dict[str, np.ndarray]:
        """Totals and counts (2, r) of the heads of the layer, by statistic."""
        return {name: state.estimate(name)[1].sum(axis=1) for name in state.statistics}

    def notes(self, states: Sequence[Means]) -> list[str]:
        """Layers that could not be measured."""
        return [f"gradient_flow: {name} was left out: {why}" for name, why in self._pass.skipped.items()]


def _is_square(p: Projections) -> bool:
    """Whether the head writes to the space that it reads: with an output projection, or as a single head without."""
    h, width, d = p.value.shape
    return p.output is not None or (h == 1 and width == d)


def _shares_or_none(p: Projections, sample: int, head: int, seed: int) -> dict[str, float]:
    """The statistics, or none of them where the share is 0/0, as for a head whose values are zero."""
    try:
        return head_shares(p, sample, head, seed=seed)
    except GeoattnError:
        return {}


@register_lens("gradient_flow")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [GradientFlowLens.of(settings)]
