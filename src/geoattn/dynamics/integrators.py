"""Steps in time: explicit Runge-Kutta schemes with projection on the sphere, and noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "INTEGRATORS",
    "Integrator",
    "Motion",
    "Scheme",
    "Step",
    "kick",
    "next_step_size",
    "runge_kutta",
    "to_sphere",
]


class Motion(NamedTuple):
    """What the tokens do at one moment: velocity, and the rate at which the flow changes the energy.

    ``log_mass`` is what `attend` gives; ``rate`` (in units of exp(log_scale) of the caller) is NaN for a flow that is
    no gradient flow.
    """

    velocity: Tensor  # b n d
    rate: Tensor  # b
    log_mass: Tensor  # b n


@dataclass(frozen=True)
class Scheme:
    """An explicit Runge-Kutta method: row s of ``a`` weighs the stages before s, ``b`` the result, ``c`` the times.

    ``error`` is b minus the weights of the embedded method of one order less; then the last stage is the first of the
    next step.
    """

    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    error: tuple[float, ...] | None = None


_EULER = Scheme(1, ((),), (1.0,), (0.0,))
_RK4 = Scheme(4, ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6), (0.0, 0.5, 0.5, 1.0))
# Dormand and Prince 1980, order 5 with an embedded order 4
_B = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0)
_B_HAT = (5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40)
_DORMAND_PRINCE = Scheme(
    5,
    (
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _B[:6],
    ),
    _B,
    (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    tuple(p - q for p, q in zip(_B, _B_HAT, strict=True)),
)


@dataclass(frozen=True)
class Integrator:
    """A method of `simulate`: a scheme, and what it is a scheme for.

    ``adaptive``: the step follows the error of the embedded method. ``layer``: the attention output itself is added,
    not its tangent part, so the steps are the layers of a transformer; they converge to the same flow.
    """

    name: str
    about: str
    scheme: Scheme
    layer: bool = False

    @property
    def order(self) -> int:
        """Order of convergence in the step."""
        return self.scheme.order

    @property
    def adaptive(self) -> bool:
        """Whether the step follows an estimate of the error."""
        return self.scheme.error is not None


#: The methods of `simulate`, by name. A new one is an entry here; tests/dynamics/test_integrators.py runs them all.
INTEGRATORS = {
    method.name: method
    for method in (
        Integrator("rk4", "projected Runge-Kutta of order 4", _RK4),
        Integrator("adaptive", "projected Dormand-Prince 5(4) with an adapted step", _DORMAND_PRINCE),
        Integrator("euler", "projected Euler", _EULER),
        Integrator("layer", "the layers of a transformer, x <- normalise(x + step * attention(x))", _EULER, layer=True),
    )
}


class Step(NamedTuple):
    """State after a step; with an embedded method also the largest error of a token and the motion at the new state."""

    x: Tensor  # b n d
    work: Tensor  # b
    error: float | None = None
    motion: Motion | None = None


def to_sphere(x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
    """Each token divided by its norm."""
    return x / x.norm(dim=-1, keepdim=True)


def runge_kutta(
    scheme: Scheme,
    field: Callable[[float, Tensor], Motion],
    project: Callable[[Tensor], Tensor],
    t: float,
    x: Float[Tensor, "b n d"],
    work: Float[Tensor, " b"],
    h: float,
    first: Motion,
) -> Step:
    r"""One step of length h from x, where the motion ``first`` is known.

    The stages are evaluated at projected points and the result is projected. This is the scheme for the field
    :math:`x \mapsto v(x / |x|)`, which is tangent to all spheres, so the order of the scheme is kept (Hairer, Lubich
    and Wanner, Geometric Numerical Integration, section IV.4). ``work`` is integrated by the same scheme.
    """
    stages = [first]
    for row, c in zip(scheme.a[1:], scheme.c[1:], strict=True):
        moved = x + h * _sum(row, [s.velocity for s in stages])
        stages.append(field(t + c * h, project(moved)))
    new = project(x + h * _sum(scheme.b, [s.velocity for s in stages]))
    done = work + h * _sum(scheme.b, [s.rate for s in stages])
    if scheme.error is None:
        return Step(new, done)
    error = h * _sum(scheme.error, [s.velocity for s in stages])
    relative = (error.norm(dim=-1) / x.norm(dim=-1)).max()
    return Step(new, done, float(relative), stages[-1])


def _sum(weights: tuple[float, ...], terms: list[Tensor]) -> Tensor:
    total = torch.zeros_like(terms[0])
    for weight, term in zip(weights, terms, strict=False):
        if weight:
            total = total.add(term, alpha=weight)
    return total


def next_step_size(h: float, error: float, tolerance: float, order: int) -> float:
    """The step that would just meet the tolerance, with a margin, at most five times longer or shorter.

    Examples
    --------
    >>> next_step_size(0.1, 1e-8, 1e-8, 5)
    0.09
    """
    if error == 0.0:
        return 5.0 * h
    return h * min(5.0, max(0.2, 0.9 * (tolerance / error) ** (1.0 / order)))


def kick(
    x: Float[Tensor, "b n d"],
    noise: float,
    h: float,
    project: Callable[[Tensor], Tensor],
    draw: torch.Generator,
) -> Float[Tensor, "b n d"]:
    r"""Brownian motion on the sphere for a time h: generator :math:`\tfrac12 \text{noise}^2 \Delta`, weak order 1.

    A Gaussian step in space, projected: the radial part only enters at order h^2.
    """
    step = torch.randn(x.shape, generator=draw, dtype=x.dtype, device=x.device)
    step = step - (x * step).sum(-1, keepdim=True) * x / x.square().sum(-1, keepdim=True)
    return project(x + noise * h**0.5 * step)
