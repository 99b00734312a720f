"""The regulariser of the Ricci paper: a function of the variance of attention, added to the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geoattn.capture.record import Record
from geoattn.errors import GeoattnError
from geoattn.training.processes import current, mean_over_samples
from geoattn.training.regulariser import Penalty, Regulariser, read_number
from geoattn.training.short_variance import early_variance
from geoattn.training.variance import glimpsed_variances, record_variances

__all__ = ["VarianceRegulariser"]

_LARGEST_EXPONENT = 80.0  # exp(80) is finite in float32


class VarianceRegulariser(Regulariser):
    r"""Adds :math:`\gamma\, h(\sigma_A^2)` to the loss (equation 7 of the Ricci paper).

    :math:`\sigma_A^2` is the population variance over the valid entries of a map, averaged over samples and heads,
    then over layers. To increase it :math:`h(x) = \exp(-a x + b)`, to decrease it :math:`h(x) = \log(a x + b)`: both
    have decreasing marginals, so attention neither becomes uniform nor one-hot at any price.

    The variance of a map of n tokens lies between 0 and (n - 1) / n^2, so a should be about n^2 / 3 for h to see it.
    The paper gives no values. The defaults (a = 100, and b such that h is 1 or 0 for uniform attention) suit the 17
    tokens of L-ViT.

    Where the model's attention is fused nothing but queries and keys is read, in O(n) memory; see
    `geoattn.training.variance.streamed_variance`.

    Parameters
    ----------
    direction
        ``increase`` or ``decrease``: where the variance is to go.
    a
        Scale, above 0.
    b
        Shift; default 0 to increase and 1 to decrease. To decrease it must be above 0, as the variance may be 0.
    gamma
        Weight, above 0.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training.variance_regulariser import VarianceRegulariser
    >>> model = geoattn.LViT()
    >>> handle = VarianceRegulariser("decrease").attach(model)
    >>> logits = model(torch.rand(2, 1, 28, 28))
    >>> loss = torch.nn.functional.cross_entropy(logits, torch.tensor([3, 7])) + handle.penalty()
    >>> loss.backward()
    >>> handle.remove()
    """

    early = staticmethod(early_variance)

    def __init__(self, direction: Any = "increase", a: Any = 100.0, b: Any = None, gamma: Any = 1.0) -> None:
        if direction not in ("increase", "decrease"):
            raise GeoattnError(f"direction must be 'increase' or 'decrease'; got {direction!r}.")
        self.direction = direction
        self.a = read_number("a", a, least=0, strict=True)
        self.b = read_number("b", (0.0 if direction == "increase" else 1.0) if b is None else b)
        self.gamma = read_number("gamma", gamma, least=0, strict=True)
        if direction == "decrease" and self.b <= 0:
            raise GeoattnError(
                f"log(a x + b) is undefined at variance x = 0 for b = {self.b:g}; to decrease the variance b must be"
                " above 0, for example 1."
            )
        if direction == "increase" and self.b > _LARGEST_EXPONENT:
            raise GeoattnError(f"exp(-a x + b) overflows for b = {self.b:g}; b must be at most {_LARGEST_EXPONENT:g}.")

    def h(self, variance: Any) -> Any:
        """The function of the variance, before gamma."""
        x = self.a * variance
        return torch.exp(self.b - x) if self.direction == "increase" else torch.log(x + self.b)

    def penalise(self, record: Record, step: int) -> Penalty:
        """Gamma times h of the variance, and the variance of each layer."""
        names, found = _variances(record)
        if isinstance(found, Tensor) and current() is None:
            means = found.mean((1, 2))  # one step for all layers
            layers, variance = dict(zip(names, means.detach().unbind(), strict=True)), means.mean()
        else:
            layers = {name: mean_over_samples(values) for name, values in zip(names, found, strict=True)}
            variance = _mean(list(layers.values()))
        if bool(variance.isnan()):  # samples of nothing but padding have no maps
            layers = {name: mean_over_samples(values) for name, values in zip(names, found, strict=True)}
            layers = {name: value for name, value in layers.items() if not bool(value.isnan())}
            if not layers:
                raise GeoattnError("no attention map of this batch has an entry between real tokens; is all padding?")
            variance = _mean(list(layers.values()))
        figures = {"variance": variance, **{f"variance/{name}": value for name, value in layers.items()}}
        return Penalty(self.gamma * self.h(variance), figures)


def _variances(record: Record) -> tuple[dict[str, None], Any]:
    """Names of the calls, and their variances: (b, h) each, in one tensor where they are of one shape."""
    names: dict[str, None] = {}
    glimpses = record.glimpses()
    found = None if glimpses is None else glimpsed_variances(glimpses)
    if glimpses is None or found is None:
        calls = list(record)
        for call in calls:
            names[layer_name(call.name, call.visit, names)] = None
        return names, record_variances(calls)
    visits: dict[str, int] = {}
    for glimpse in glimpses:
        visits[glimpse.name] = visits.get(glimpse.name, -1) + 1
        names[layer_name(glimpse.name, visits[glimpse.name], names)] = None
    return names, found


def _mean(layers: list[Any]) -> Any:
    """The mean over layers, which may lie on several devices."""
    return torch.stack([value.to(layers[0].device) for value in layers]).mean()


def layer_name(name: str, visit: int, taken: Any) -> str:
    """Name of a call for a log: that of its module, with the number of the visit where layers are shared."""
    return name if name not in taken else f"{name}#{visit}"
