"""Steps of least movement: the implicit scheme of Jordan, Kinderlehrer and Otto in the metric of attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from geoattn._core.arguments import read_choice, read_count, read_number
from geoattn._core.display import Viewable
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.dynamics.inputs import read_one_matrix, read_symmetric, read_tokens, read_weights

__all__ = ["MinimisingMovement", "minimising_movement"]

Metric = Literal["mobility", "W2"]
METRICS = ("mobility", "W2")
_ITERATIONS = 100  # of L-BFGS in one step


@dataclass(frozen=True, repr=False)
class MinimisingMovement(Viewable):
    """Tokens after each step: ``t`` is the step times its number, ``tokens`` (step, n, d).

    ``functional`` are the values that fall from step to step; ``distance`` how far each step went in the metric;
    ``iterations`` how often L-BFGS iterated in each; ``residual`` the largest component of the gradient that it left,
    relative to that at the start of the step.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import minimising_movement
    >>> run = minimising_movement(torch.eye(3, dtype=torch.float64), step=0.05, steps=3)
    >>> len(run.functional)
    4
    """

    t: Float[Tensor, " time"]
    tokens: Float[Tensor, "time n d"]
    functional: Float[Tensor, " time"]
    distance: Float[Tensor, " step"]
    iterations: tuple[int, ...]
    residual: Float[Tensor, " step"]
    settings: dict[str, Any] = field(default_factory=dict)
    version: str = __version__

    @property
    def final(self) -> Float[Tensor, "n d"]:
        """The tokens after the last step."""
        return self.tokens[-1]

    def __repr__(self) -> str:
        """Short: how many tokens, which metric, how many steps."""
        _, n, d = self.tokens.shape
        return (
            f"MinimisingMovement({self.settings.get('metric')}, n={n}, d={d}, {len(self.distance)} steps,"
            f" t={float(self.t[-1]):.6g}, functional {float(self.functional[0]):.6g} ->"
            f" {float(self.functional[-1]):.6g})"
        )


def minimising_movement(
    tokens: Any,
    functional: Any = "ascend",
    *,
    D: Any = None,
    beta: Any = 1.0,
    metric: str = "mobility",
    step: Any = 0.1,
    steps: Any = 100,
    weights: Any = None,
    tolerance: Any = 1e-8,
    normalise: bool = False,
    progress: Callable[[float, float], object] | None = None,
) -> MinimisingMovement:
    r"""Implicit steps of a gradient flow: each minimises movement and functional together.

    .. math:: x^{k+1} = \arg\min_x \; \frac{1}{2\tau} d(x, x^k)^2 + F(x)

    Parameters
    ----------
    tokens
        (n, d) on the unit sphere; ``weights`` are their masses, 1/n each by default.
    functional
        ``"ascend"`` and ``"descend"``: :math:`F = \mp\frac{1}{2\beta} \sum_{ij} w_i w_j e^{\beta x_i \cdot D x_j}` with
        a symmetric D. These are the flows of `simulate` with V = D and V = -D: SA in the metric ``mobility``, USA in
        ``W2``. Or any function of tokens (n, d) and weights (n) that gives a differentiable number, which then falls.
    D, beta
        Of the functional and of the mobility :math:`m(x) = \sum_j w_j e^{\beta \langle x, D x_j\rangle}`. With a
        functional of your own D need not be symmetric.
    metric
        ``mobility``: :math:`d^2 = \sum_i w_i m(x_i) \theta_i^2`, m at the middle of the arcs, :math:`\theta_i` their
        angles. This is `mobility_distance` up to a relative error of second order in the angles. ``W2``: m = 1.
    step, steps
        :math:`\tau`, and how many.
    tolerance
        Of the gradient in a step, relative to that at its start.

    Returns
    -------
    MinimisingMovement
        The functional never rises: a step that would is an error.

    Notes
    -----
    Order one in the step. A step is implicit, so it may be long where the flow is stiff. O(n^2 d) time for each of some
    ten evaluations a step, O(n^2) memory. Tokens keep to their own arcs, which is the optimal coupling for short steps.
    Reference: Jordan, Kinderlehrer and Otto 1998 for W2; the metric is that of Burger et al. 2025.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import minimising_movement
    >>> run = minimising_movement(torch.eye(3, dtype=torch.float64), step=0.05, steps=20)
    >>> bool((run.functional.diff() < 0).all())
    True
    """
    x = read_tokens(tokens, normalise=normalise).double()
    if x.ndim != 2:
        raise GeoattnError(f"tokens must be one (n, d) array; got shape {tuple(x.shape)}.")
    x = x / x.norm(dim=-1, keepdim=True)
    w = read_weights(weights, tuple(x.shape[:1]), x)
    if (w == 0).any():
        raise GeoattnError("weights must be positive here: a token without mass does not enter the metric.")
    metric = read_choice("metric", metric, METRICS)
    beta, tau = read_number("beta", beta), read_number("step", step, above=0.0)
    count, tolerance = read_count("steps", steps, least=1), read_number("tolerance", tolerance, above=0.0)
    d = x.shape[1]
    matrix = _square(D, d)
    kernel = beta * (read_one_matrix("D", matrix) if callable(functional) else read_symmetric("D", matrix))
    falls = _read_functional(functional, kernel, beta)
    rows, values, distances, iterations, residuals = [x], [float(falls(x, w))], [], [], []
    if not math.isfinite(values[0]):
        raise GeoattnError(f"functional must be finite at the given tokens; got {values[0]!r}.")
    for k in range(count):
        new, distance, used, left = _one_step(x, w, kernel, falls, tau, metric == "mobility", tolerance)
        value = float(falls(new, w))
        if not math.isfinite(value) or value > values[-1] + 1e-12 * max(1.0, abs(values[-1])):
            raise GeoattnError(
                f"the functional rises from {values[-1]!r} to {value!r} in step {k + 1}; is it differentiable? A"
                " shorter step= may help."
            )
        x = new
        rows.append(x)
        values.append(value)
        distances.append(distance)
        iterations.append(used)
        residuals.append(left)
        if progress is not None:
            progress(k + 1, count)
    about = {"n": len(x), "d": d, "metric": metric, "step": tau, "beta": beta, "tolerance": tolerance}
    number = torch.float64
    return MinimisingMovement(
        t=tau * torch.arange(count + 1, dtype=number), tokens=torch.stack(rows),
        functional=torch.tensor(values, dtype=number), distance=torch.tensor(distances, dtype=number),
        iterations=tuple(iterations), residual=torch.tensor(residuals, dtype=number), settings=about,
    )  # fmt: skip


def _square(D: Any, d: int) -> Any:
    matrix = 1.0 if D is None else D
    if isinstance(matrix, (int, float)) and not isinstance(matrix, bool):
        matrix = float(matrix) * torch.eye(d, dtype=torch.float64)
    if tuple(np.shape(matrix)) != (d, d):
        raise GeoattnError(f"D must be a number or a matrix ({d}, {d}); got shape {tuple(np.shape(matrix))}.")
    return matrix


def _read_functional(functional: Any, kernel: Tensor, beta: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The function that falls."""
    if callable(functional):

        def falls(x: Tensor, w: Tensor) -> Tensor:
            value = functional(x, w)
            if not isinstance(value, Tensor) or value.ndim != 0:
                raise GeoattnError("functional must give one number, a tensor without axes.")
            return value

        return falls
    sign = -1.0 if read_choice("functional", functional, ("ascend", "descend")) == "ascend" else 1.0
    if beta == 0.0:
        raise GeoattnError("beta must not be zero: the energy is constant there.")
    return lambda x, w: sign / (2 * beta) * w @ (x @ kernel @ x.mT).exp() @ w


def _one_step(
    x: Tensor, w: Tensor, kernel: Tensor, falls: Callable[[Tensor, Tensor], Tensor], tau: float, mobile: bool,
    tolerance: float,
) -> tuple[Tensor, float, int, float]:  # fmt: skip
    """(Tokens, length of the step, iterations, relative gradient left) of one step.

    The unknowns are tangent vectors in units in which the movement is |z|^2 / 2 at the start.
    """
    mass = (x @ kernel @ x.mT).exp() @ w if mobile else torch.ones_like(w)
    unit = (tau / (w * mass)).sqrt()[:, None]

    def parts(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u = unit * (z - (x * z).sum(-1, keepdim=True) * x)
        square = u.square().sum(-1)
        root = (1 + square).sqrt()[:, None]
        new = (x + u) / root
        angle = _arctangent_square(square)
        if not mobile:
            return new, (w * angle).sum(), new
        middle = x + new
        middle = middle / middle.norm(dim=-1, keepdim=True)
        return new, (w * ((middle @ kernel @ middle.mT).exp() @ w) * angle).sum(), middle

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        z = torch.from_numpy(flat.reshape(x.shape).copy()).requires_grad_()
        new, square, _ = parts(z)
        total = square / (2 * tau) + falls(new, w)
        (slope,) = torch.autograd.grad(total, z)
        return float(total.detach()), slope.numpy().ravel()

    start, slope = objective(np.zeros(x.numel()))
    steepest = float(np.abs(slope).max())
    if steepest == 0.0:
        return x, 0.0, 0, 0.0
    # values of the order of the decrease, or L-BFGS stops at the rounding of a large functional
    scale = 1.0 / float(slope @ slope)

    def scaled(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(flat)
        return scale * (value - start), scale * gradient

    options = {"maxiter": _ITERATIONS, "gtol": tolerance * steepest * scale, "ftol": 0.0}
    done = minimize(scaled, np.zeros(x.numel()), jac=True, method="L-BFGS-B", options=options)
    with torch.no_grad():
        new, square, _ = parts(torch.from_numpy(done.x.reshape(x.shape)))
    left = float(np.abs(done.jac).max()) / (steepest * scale)
    return new, math.sqrt(float(square)), int(done.nit), left


def _arctangent_square(square: Tensor) -> Tensor:
    """arctan(s)^2 as a smooth function of s^2, at 0 too."""
    small = square < 1e-8
    s = torch.where(small, torch.ones_like(square), square).sqrt()
    return torch.where(small, square - 2 / 3 * square.square(), s.atan().square())
