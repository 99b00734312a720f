"""The strength of a regulariser: its gradient beside that of the task, and the gamma that makes it so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError
from geoattn.training.distributed import Processes

if TYPE_CHECKING:
    from geoattn.training.regularisers.contract import Penalty

__all__ = ["Calibration", "Strength", "read_weight"]

_WINDOW = 200  # steps that set gamma
_EVERY = 10  # steps between two estimates
_FAINT = 1e-3  # a gradient below this share of the task's says nothing about the scale: gamma is capped there
_NOISE = 0.01  # a smaller share of the task's mean square is not told from the noise of the batches
_SILENT = 1e-4  # of the root mean square of all entries: those with less have no gradient but rounding (biases of keys)
_MEMORY = 0.95  # weight of the past in the means of adapt=True


@dataclass(frozen=True)
class Strength:
    r"""How strong a regulariser is: the ratio of the norm of its gradient to that of the task's gradient.

    With penalty :math:`\gamma R` and task loss L

    .. math:: s = \frac{\gamma\, \lVert \nabla R \rVert}{\lVert \mathbb{E} \nabla L \rVert}, \qquad
              \lVert g \rVert^2 = \sum_i \frac{g_i^2}{v_i},

    over the parameters of the attention modules. Two things make the ratio that of what the optimiser does:

    * Each entry is divided by the root mean square :math:`\sqrt{v_i}` of the task's gradient there, as Adam does. Where
      maps are nearly uniform the task's gradient in values and outputs is far larger than in queries and keys, and a
      plain norm would count the former alone, where the regulariser does not act.
    * The norm of the task's gradient is that of its mean over batches. Its square is estimated without bias by the
      inner product of the gradients of two consecutive steps, whose batches are independent; at least a hundredth of
      the mean square is taken. The norm of one batch's gradient is mostly noise, which the optimiser averages out.

    Two of every ten of the first 200 steps add to these means, and gamma is then kept. The gradient of R is that of the
    last estimates. During these steps gamma grows linearly from 0 to its estimate. With ``adapt`` the means are moving
    averages and gamma follows them all along. An estimate takes three more backward passes.

    Where R has hardly a gradient (below 1e-3 of the task's, as for uniform maps) gamma is capped at 1000 s, kept for
    200 steps, and estimated again over the next 200. ``gamma_capped`` in the figures says so.
    """

    value: float
    adapt: bool = False


def read_weight(gamma: Any, strength: Any, adapt: Any, *, default: float | None) -> tuple[float, Strength | None]:
    """The weight of a regulariser: gamma as given or by default; or gamma 1 and the strength that will scale it.

    >>> read_weight(None, 0.1, False, default=1.0)
    (1.0, Strength(value=0.1, adapt=False))
    """
    if strength is None:
        if adapt:
            raise GeoattnError("adapt=True keeps the strength all along: give strength, for example strength=0.1.")
        return read_number("gamma", default if gamma is None else gamma, above=0), None
    if gamma is not None:
        raise GeoattnError(f"give gamma or strength, not both; got gamma={gamma!r} and strength={strength!r}.")
    if not isinstance(adapt, bool):
        raise GeoattnError(f"adapt must be True or False; got {adapt!r}.")
    return 1.0, Strength(read_number("strength", strength, above=0), adapt)


class Calibration:
    """The gamma of one attached regulariser: estimated on some steps, then kept.

    ``state`` gives what a checkpoint needs for a run to go on with the same weights.
    """

    def __init__(self, strength: Strength) -> None:
        self.strength = strength
        self.gamma = 0.0
        self.capped = False
        self._first: int | None = 0  # step at which the window opens; None: gamma is final
        self._estimates = 0
        self._warm = False  # whether gamma has once reached its estimate
        self._before: Tensor | None = None  # the task's gradient at the first step of a pair
        self._means: tuple[Tensor, Tensor, Tensor] | None = None  # the task's squares and products, the penalty's

    def is_due(self, step: int) -> bool:
        """Whether this step takes part in an estimate: it and the next one, or the one before."""
        return self._first is not None and step >= self._first and (step - self._first) % _EVERY < 2

    def weigh(
        self, penalty: Penalty, task: Tensor | None, model: nn.Module, names: Iterable[str] | None,
        processes: Processes | None, step: int, weight: float = 1.0,
    ) -> Penalty:  # fmt: skip
        """The penalty times gamma; ``names`` are the attention modules, at a step that takes part in an estimate.

        ``weight`` multiplies the penalty afterwards: that of one of several micro-batches, whose task has it already.
        """
        if names is not None and penalty.value.requires_grad:
            if task is None:
                raise GeoattnError(
                    "a regulariser with strength= compares its gradient with that of the task: give the task's loss,"
                    " as in loss = task + handle.penalty(task)."
                )
            parameters = attention_parameters(model, names)
            theirs = _gradient(task, parameters, processes)
            if self._before is None or (step - (self._first or 0)) % _EVERY == 0:
                self._before = theirs
            else:
                self._take(weight * _gradient(penalty.value, parameters, processes), self._before, theirs, step)
        figures = {**penalty.figures, "gamma": self.gamma, "gamma_capped": float(self.capped)}
        return replace(penalty, value=self.gamma * penalty.value, figures=figures)

    def _take(self, mine: Tensor, before: Tensor, theirs: Tensor, step: int) -> None:
        """Add the gradients of two steps to the means, and estimate gamma from them."""
        self._before = None
        if not bool(mine.isfinite().all() & before.isfinite().all() & theirs.isfinite().all()):
            return  # the loop will name what is not finite
        self._estimates += 1
        keep = 1 - 1 / self._estimates
        if self.strength.adapt:
            keep = min(keep, _MEMORY)
        squares, products = (before.square() + theirs.square()) / 2, before * theirs
        if self._means is not None:
            squares, products = self._means[0].lerp(squares, 1 - keep), self._means[1].lerp(products, 1 - keep)
            mine = self._means[2].lerp(mine, 0.5)
        self._means = squares, products, mine
        share = _share(squares, products, mine)
        if share is None:
            return
        self.capped = share < _FAINT
        estimate = self.strength.value / max(share, _FAINT)
        self.gamma = estimate * (1.0 if self._warm else min(1.0, self._estimates * _EVERY / _WINDOW))
        if self._estimates * _EVERY >= _WINDOW:
            self._warm = True
            if self.strength.adapt:
                return
            self._first = step + _WINDOW if self.capped else None
            self._estimates, self._means = 0, None

    def state(self) -> dict[str, Any]:
        """Plain values, and the means of gradients while they are being taken."""
        plain = {"gamma": self.gamma, "capped": self.capped, "first": self._first, "estimates": self._estimates}
        return {**plain, "warm": self._warm, "means": self._means, "before": self._before}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.gamma, self.capped, self._first = state["gamma"], state["capped"], state["first"]
        self._estimates, self._warm, self._before = state["estimates"], state["warm"], state["before"]
        means = state["means"]
        self._means = None if means is None else (means[0], means[1], means[2])


def _share(squares: Tensor, products: Tensor, mine: Tensor) -> float | None:
    """The norm of the penalty's gradient over that of the task's mean gradient; None where the task has none."""
    floor = _SILENT**2 * squares.mean()
    if float(floor) == 0:
        return None
    scale = squares + floor
    noise, signal = float((squares / scale).sum()), float((products / scale).sum())
    return float((mine.square() / scale).sum().sqrt()) / max(signal, _NOISE * noise) ** 0.5


def attention_parameters(model: nn.Module, names: Iterable[str]) -> list[nn.Parameter]:
    """Parameters of the modules in which attention ran; of a module without any, those of the one around it."""
    found: dict[int, nn.Parameter] = {}
    for name in names:
        path = name.split(".") if name else []
        while True:
            own = list(model.get_submodule(".".join(path)).parameters())
            if own or not path:
                break
            path.pop()
        found.update({id(p): p for p in own if p.requires_grad})
    if not found:
        raise GeoattnError(
            "strength= compares gradients of the attention modules' parameters, and none of them is trained; give"
            " gamma instead."
        )
    return list(found.values())


def _gradient(loss: Tensor, parameters: list[nn.Parameter], processes: Processes | None) -> Tensor:
    """The gradient as one vector, the mean over the processes where there are several."""
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    parts = [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]
    vector = torch.cat([part.detach().float().cpu().reshape(-1) for part in parts])
    return vector if processes is None or processes.count == 1 else processes.total(vector) / processes.count
