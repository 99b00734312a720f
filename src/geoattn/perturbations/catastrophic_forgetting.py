"""Forgetting: what a second training costs on the first task, as a curve and as one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from torch import nn

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.datasets.dataset import Dataset
from geoattn.perturbations.classifier_accuracy import accuracy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Forgetting", "forgetting", "forgetting_area"]


def forgetting_area(accuracies: Any, steps: Any = None) -> float:
    r"""Area under the forgetting curve: the accuracy lost on the first task, averaged over the second training.

    .. math:: \frac{1}{T} \int_0^T (a(0) - a(t)) \, dt

    with a linear between the recorded points. 0: nothing forgotten; a(0): all of it at once; negative when the second
    task helps the first. One number for how much and how fast; it depends on T, so compare runs of equal length.

    Parameters
    ----------
    accuracies
        (k,) accuracy on the first task, from before the first step of the second training; k >= 2.
    steps
        (k,) when they were taken, ascending; equally far apart by default.

    Examples
    --------
    >>> from geoattn.perturbations import forgetting_area
    >>> round(forgetting_area([0.9, 0.5, 0.5], [0, 100, 400]), 3)
    0.35
    """
    values = _read_curve("accuracies", accuracies)
    times = np.arange(float(len(values))) if steps is None else np.asarray(steps, dtype=np.float64)
    if times.shape != values.shape or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise GeoattnError(f"steps must be {len(values)} ascending numbers, one per accuracy; got {times.tolist()}.")
    return float(np.trapezoid(values[0] - values, times) / (times[-1] - times[0]))


@dataclass(frozen=True, eq=False, repr=False)
class Forgetting(Displayed):
    """Accuracy on two tasks along a training on the second; what `forgetting` returns.

    ``first``, ``second`` (k,) are accuracies after ``steps`` (k,) steps, the first of them 0. ``chance`` is the
    accuracy of the best constant answer on the first task.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.perturbations import Forgetting
    >>> steps, first, second = np.array([0, 100, 200]), np.array([0.9, 0.5, 0.4]), np.array([0.1, 0.7, 0.8])
    >>> curve = Forgetting(steps, first, second, chance=0.1)
    >>> round(curve.lost, 6), round(curve.area, 6), curve.half_life
    (0.5, 0.325, 100.0)
    """

    steps: Int[np.ndarray, " k"]
    first: Float[np.ndarray, " k"]
    second: Float[np.ndarray, " k"]
    chance: float
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def area(self) -> float:
        """Area under the forgetting curve, see `forgetting_area`."""
        return forgetting_area(self.first, self.steps)

    @property
    def relative_area(self) -> float:
        """The area over what there was to lose, a(0) - chance; NaN when there was nothing."""
        at_stake = float(self.first[0]) - self.chance
        return self.area / at_stake if at_stake > 0 else float("nan")

    @property
    def lost(self) -> float:
        """Accuracy on the first task before minus after the training."""
        return float(self.first[0] - self.first[-1])

    @property
    def half_life(self) -> float:
        """Steps until half of a(0) - chance is lost, linear between the points; inf when it never is."""
        limit = (float(self.first[0]) + self.chance) / 2
        below = np.flatnonzero(self.first <= limit)
        if self.first[0] <= self.chance:
            return float("nan")
        if len(below) == 0:
            return float("inf")
        k = below[0]
        a, b = self.first[k - 1], self.first[k]
        return float(self.steps[k - 1] + (a - limit) / (a - b) * (self.steps[k] - self.steps[k - 1]))

    def to_pandas(self) -> pd.DataFrame:
        """One row per point of the curve."""
        import pandas as pd

        return pd.DataFrame({"step": self.steps, "first": self.first, "second": self.second})


def forgetting(
    model: nn.Module,
    first: Dataset,
    second: Dataset,
    train_step: Callable[[nn.Module, int], object],
    *,
    steps: int,
    every: int = 10,
    measure: Callable[[nn.Module, Dataset], float] = accuracy,
    progress: Callable[[int, int], object] | None = None,
) -> Forgetting:
    """Train on a second task and watch the first one go.

    Parameters
    ----------
    model
        Already trained on the first task; it is changed in place.
    first, second
        Test sets of the two tasks.
    train_step
        Called with (model, step), step = 0, 1, ...: one step of the training on the second task. It holds the training
        data, the optimiser and the seed.
    steps, every
        How many steps, and how often to measure: at 0, every so many, and at the end.
    measure
        (model, test set) -> accuracy. `accuracy` by default; pass one with a tokenizer for texts.
    progress
        Called with (steps done, in all).

    Notes
    -----
    One head serves both tasks, as in the Ricci paper (Section 5, Appendix E.2): sets with the same number of classes.
    Part of what is forgotten is then the meaning of the classes, not the features.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> from geoattn.perturbations import forgetting
    >>> digits = ga.load_data("digits", split="test").subset(range(64))
    >>> def shrink(model, step):
    ...     with torch.no_grad():
    ...         model.mlp_head.weight.mul_(-1.0 if step == 1 else 1.0)
    >>> curve = forgetting(ga.load_model("lvit-digits"), digits, digits, shrink, steps=3, every=1)
    >>> curve.first[1] > 0.8 > curve.first[2] and 0 < curve.area < curve.lost
    True
    """
    for name, value in (("steps", steps), ("every", every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise GeoattnError(f"{name} must be a positive integer; got {value!r}.")
    if len(first) == 0 or len(second) == 0:
        raise GeoattnError(f"a test set is empty: {first.name} has {len(first)} rows, {second.name} {len(second)}.")
    points: list[tuple[int, float, float]] = [(0, measure(model, first), measure(model, second))]
    for step in range(steps):
        train_step(model, step)
        done = step + 1
        if done % every == 0 or done == steps:
            points.append((done, measure(model, first), measure(model, second)))
        if progress is not None:
            progress(done, steps)
    when, one, two = zip(*points, strict=True)
    chance = float(np.bincount(first.labels).max() / len(first))
    settings = {"first": first.name, "second": second.name, "steps": steps, "every": every}
    return Forgetting(
        np.array(when), _read_curve("first", one), _read_curve("second", two), chance, settings
    )  # fmt: skip


def _read_curve(name: str, accuracies: Any) -> Float[np.ndarray, " k"]:
    values = np.asarray(accuracies, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise GeoattnError(f"{name} must be at least two accuracies (k,); got shape {values.shape}.")
    if not ((values >= 0) & (values <= 1)).all():
        raise GeoattnError(f"{name}: an accuracy lies between 0 and 1; got {values.min():.4g} to {values.max():.4g}.")
    return values
