"""The regulariser of the Ricci paper: a function of the variance of attention, added to the loss."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.attention.record import Record
from geoattn.training.attachments import register_attachment
from geoattn.training.distributed import mean_over_samples
from geoattn.training.regularisers.contract import Penalty, Regulariser, layer_name
from geoattn.training.strength import read_weight
from geoattn.training.variance_from_maps import call_variance
from geoattn.training.variance_range import Scales

__all__ = ["VarianceRegulariser"]

_LARGEST_EXPONENT = 80.0  # exp(80) is finite in float32


@register_attachment("variance")
class VarianceRegulariser(Regulariser):
    r"""Adds :math:`\gamma\, h(\sigma_A^2)` to the loss (equation 7 of the Ricci paper).

    :math:`\sigma_A^2` is the population variance over the valid entries of a map, averaged over samples and heads,
    then over layers. To increase it :math:`h(x) = \exp(-a x + b)`, to decrease it :math:`h(x) = \log(a x + b)`: both
    have decreasing marginals, so attention neither becomes uniform nor one-hot at any price.

    The paper gives no values for a, b and gamma. By default each sample gets its a and the floor of its variance from
    its number of tokens and its mask, and x is the mean of a (variance - floor): a full map of n tokens has variances
    between 0 and (n - 1) / n^2 and gets a of about 4 n^2 / 3; a causal map has a floor above 0. h is then 1 or 0 for
    uniform attention, whatever the lengths are. ``strength`` chooses gamma by its effect; see
    `geoattn.training.strength.Strength`.

    Where the model's attention is fused nothing but queries and keys is read, in O(n) memory; see
    `geoattn.training.streamed_variance`.

    Parameters
    ----------
    direction
        ``increase`` or ``decrease``: where the variance is to go.
    a
        Scale of the variance, above 0. None: by length and mask; see `geoattn.training.variance_range.Scales`.
    b
        Shift; default 0 to increase and 1 to decrease. To decrease it must be above 0, as the variance may be 0.
    gamma
        Weight, above 0; default 1.
    strength, adapt
        Instead of gamma: the ratio of the gradient of the penalty to that of the task, set on the first steps; with
        ``adapt`` kept all along.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import VarianceRegulariser
    >>> model = geoattn.models.LViT()
    >>> handle = VarianceRegulariser("decrease").attach(model)
    >>> logits = model(torch.rand(2, 1, 28, 28))
    >>> loss = torch.nn.functional.cross_entropy(logits, torch.tensor([3, 7])) + handle.penalty()
    >>> loss.backward()
    >>> handle.remove()
    """

    def __init__(
        self, direction: Any = "increase", a: Any = None, b: Any = None, gamma: Any = None, *, strength: Any = None,
        adapt: Any = False,
    ) -> None:  # fmt: skip
        if direction not in ("increase", "decrease"):
            raise GeoattnError(f"direction must be 'increase' or 'decrease'; got {direction!r}.")
        self.direction = direction
        self._warned = False
        self.a = None if a is None else read_number("a", a, above=0)
        self.b = read_number("b", (0.0 if direction == "increase" else 1.0) if b is None else b)
        self.gamma, self.strength = read_weight(gamma, strength, adapt, default=1.0)
        if direction == "decrease" and self.b <= 0:
            raise GeoattnError(
                f"log(a x + b) is undefined at variance x = 0 for b = {self.b:g}; to decrease the variance b must be"
                " above 0, for example 1."
            )
        if direction == "increase" and self.b > _LARGEST_EXPONENT:
            raise GeoattnError(f"exp(-a x + b) overflows for b = {self.b:g}; b must be at most {_LARGEST_EXPONENT:g}.")

    def h(self, x: Any) -> Any:
        """The function of the scaled variance x = a (variance - floor), before gamma.

        Rounding may bring x below 0, where the logarithm goes on as its tangent.
        """
        if self.direction == "increase":
            return torch.exp(self.b - x)
        above = x.clamp_min(0.0)
        return torch.log(above + self.b) + (x - above) / self.b

    def penalise(self, record: Record, step: int) -> Penalty:
        """Gamma times h of the variance, and the variance of each layer."""
        scales = Scales()
        visits: dict[str, list[Any]] = {}  # of a module: several forward passes of a step count as one batch
        scaled: dict[str, list[Any]] = {}
        figures: dict[str, Any] = {}
        for call in record:
            maps = call_variance(call)
            visits.setdefault(call.name, []).append(maps)
            above = scales.above_floor(call, maps) if self.a is None else self.a * maps
            scaled.setdefault(call.name, []).append(above)
            name = f"variance/{call.name}"
            figures[layer_name(name, call.visit, figures)] = mean_over_samples(maps.detach())
        layers, excess = (
            [mean_over_samples(torch.cat([maps.reshape(-1) for maps in found])) for found in of.values()]
            for of in (visits, scaled)
        )
        weights = [len(found) for found in visits.values()]
        variance, x = _mean(layers, weights), _mean(excess, weights)
        if bool(variance.isnan()):  # samples of nothing but padding have no maps
            real = [k for k, value in enumerate(layers) if not bool(value.isnan())]
            if not real and not any(bool(call.valid.any()) for call in record):
                raise GeoattnError("no attention map of this batch has an entry between real tokens; is all padding?")
            real = real or list(range(len(layers)))  # maps that are not finite: so is the penalty
            variance, x = (_mean([of[k] for k in real], [weights[k] for k in real]) for of in (layers, excess))
            figures = {name: value for name, value in figures.items() if not bool(value.isnan())}
        if self.a is None and not scales.found:
            self._warn_of_no_range()
        return Penalty(self.gamma * self.h(x), {"variance": variance.detach(), **figures})

    def _warn_of_no_range(self) -> None:
        """Say once that a batch, such as one of texts of one token, has no variance that could change."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                "no attention map of this batch has two entries in a row, so its variance has no range and its penalty"
                " no gradient.", GeoattnWarning, stacklevel=4,
            )  # fmt: skip


def _mean(layers: list[Any], weights: list[int]) -> Any:
    """The mean over layers, which may lie on several devices; a module counts as often as it ran."""
    values = torch.stack([value.to(layers[0].device) for value in layers])
    if len(set(weights)) == 1:
        return values.mean()
    return (values * values.new_tensor(weights)).sum() / sum(weights)
