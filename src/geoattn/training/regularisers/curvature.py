"""Exact curvature of a sample of attention maps, put into the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geoattn._core.arguments import read_count
from geoattn._core.errors import GeoattnError
from geoattn.attention.record import Record
from geoattn.curvature.layout import read_edges
from geoattn.curvature.loss import edge_curvature
from geoattn.graph.convention import Convention
from geoattn.training.attachments import register_attachment
from geoattn.training.distributed import with_all_maps
from geoattn.training.regularisers.contract import Penalty, Regulariser
from geoattn.training.regularisers.draw import draw_samples
from geoattn.training.strength import read_weight

__all__ = ["CurvatureRegulariser", "draw_maps"]


@register_attachment("curvature")
class CurvatureRegulariser(Regulariser):
    r"""Adds a function of the exact Ollivier-Ricci curvature of a sample of maps to the loss.

    ``increase`` adds :math:`-\gamma\,\bar\kappa`, ``decrease`` :math:`+\gamma\,\bar\kappa`, for the mean over the
    sampled edges. ``to_one`` pulls the distribution towards 1: it adds :math:`\gamma\,\overline{(1-\kappa)^2}`, the
    squared 2-Wasserstein distance to a point mass at 1. (The 1-Wasserstein distance is 1 - mean, as kappa <= 1: its
    gradient is that of ``increase``. Squares weigh the most negative edges most.)

    Each step draws ``maps`` maps, the same number from each layer, one head per layer, and ``edges`` edges of each; the
    draw depends on ``seed`` and the step alone. Values and gradients are exact (see `curvature_loss`); only the sample
    is random. Self-attention only.

    Parameters
    ----------
    direction
        ``increase``, ``decrease`` or ``to_one``.
    gamma
        Weight, above 0.
    convention
        As in `ollivier_ricci`.
    maps
        How many maps per step, or ``"all"``.
    edges
        How many edges of each map, or ``"all"``.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import CurvatureRegulariser
    >>> model = geoattn.models.LViT()
    >>> with CurvatureRegulariser("decrease", gamma=0.1).attach(model) as handle:
    ...     loss = model(torch.rand(4, 1, 28, 28)).square().mean() + handle.penalty()
    ...     loss.backward()
    ...     figures = handle.figures()
    >>> round(figures["penalty"] / figures["curvature"], 3)
    0.1
    """

    def __init__(
        self,
        direction: Any = "increase",
        gamma: Any = None,
        convention: Any = "markov",
        *,
        maps: Any = 8,
        edges: Any = 32,
        seed: Any = 0,
        threads: Any = None,
        strength: Any = None,
        adapt: Any = False,
    ) -> None:
        if direction not in ("increase", "decrease", "to_one"):
            raise GeoattnError(f"direction must be 'increase', 'decrease' or 'to_one'; got {direction!r}.")
        self.direction = direction
        self.gamma, self.strength = read_weight(gamma, strength, adapt, default=1.0)
        self.convention = Convention.of(convention)
        self.maps = None if maps == "all" else read_count("maps", maps, least=1, instead="'all' or ")
        read_edges(edges)
        self.edges = edges
        self.seed = read_count("seed", seed, least=0)
        self.threads = None if threads is None else read_count("threads", threads, least=1)

    def penalise(self, record: Record, step: int) -> Penalty:
        """The penalty of one forward pass, and the statistics of the sampled curvature."""
        kappas: list[Any] = []
        figures: dict[str, Any] = {}
        for n, group in draw_maps(record, self.maps, self.seed, step).items():
            # all maps of one size are solved in one call; the seed changes with the step, and with the size
            weights = torch.cat([maps.to(group[0][1].device) for _, maps, _ in group])
            valid = torch.cat([v.to(weights.device) for _, _, v in group])
            kappa = edge_curvature(
                weights, self.convention, edges=self.edges, mask=None if bool(valid.all()) else valid,
                seed=(self.seed * 1_000_003 + step * 8191 + n) % 2**31, threads=self.threads,
            )  # fmt: skip
            kappas.append(kappa)
        kappa = torch.cat([k.to(kappas[0].device) for k in kappas])
        figures["edges"] = kappa.numel()
        if kappa.numel() == 0:  # all sampled edges at distance 0: no curvature, so nothing to push
            return Penalty(kappa.sum(), {**figures, "curvature": float("nan")})
        figures.update({
            "curvature": kappa.detach().mean(), "curvature_min": kappa.detach().min(),
            "negative_share": (kappa.detach() < 0).double().mean(),
        })  # fmt: skip
        if self.direction == "to_one":
            value = (1 - kappa).square().mean()
        else:
            value = kappa.mean() if self.direction == "decrease" else -kappa.mean()
        return Penalty(self.gamma * value, figures)


def draw_maps(record: Record, maps: int | None, seed: int, step: int) -> dict[int, list[tuple[str, Any, Any]]]:
    """Sampled maps by number of tokens: (layer, (k, n, n), valid (k, n)); the draw depends on seed and step alone."""
    calls = [call for call in record if call.kind != "cross" and call.shape[2] == call.shape[3] >= 2]
    if not calls:
        raise GeoattnError(
            "curvature needs self-attention among at least two tokens, and this forward pass had none;"
            f" it had {', '.join(sorted({str(call) for call in record}))[:200]}."
        )
    groups: dict[int, list[tuple[str, Any, Any]]] = {}
    for k, call in enumerate(calls):
        _, h, n, _ = call.shape
        share = None if maps is None else maps // len(calls) + (k < maps % len(calls))
        sample, head, total = draw_samples(call, share, np.random.default_rng([seed, step, k]))
        if total == 0:
            continue
        index = torch.from_numpy(sample)
        valid = call.valid[index.to(call.valid.device)][:, None].expand(-1, h if head is None else 1, -1)
        if len(sample):
            weights = call.attention(sample=index, head=head).reshape(-1, n, n)
        else:
            weights = torch.zeros(0, n, n, device=valid.device)
        valid = with_all_maps(valid.reshape(-1, n))
        groups.setdefault(n, []).append((call.name, with_all_maps(weights), valid))
    if not groups:
        raise GeoattnError("no sample of this batch has two real tokens; is it all padding?")
    return groups
