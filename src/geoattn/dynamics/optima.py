"""Measures on the sphere that maximise or minimise the interaction energy, with a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_choice, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.closed_forms import uniform_energy
from geoattn.dynamics.energy import interaction_energy
from geoattn.dynamics.inputs import read_symmetric
from geoattn.dynamics.minimiser import minimise_positive

__all__ = ["Optimum", "energy_optimum"]

_FLAT = 1e-12  # eigenvalues closer than this, relative to the largest, are the same


@dataclass(frozen=True, repr=False)
class Optimum(Displayed):
    """A measure that is optimal, and why.

    ``atoms`` (m, d) and ``weights`` (m,) are the measure, or None for the uniform measure on the whole sphere.
    ``lower`` <= optimal value <= ``upper`` is proven; ``gap`` = upper - lower is 0 up to rounding for closed forms.
    ``case`` names the row of the table, ``why`` the proof in a line.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import energy_optimum
    >>> best = energy_optimum(torch.diag(torch.tensor([-1.0, 0.3])))
    >>> best.case, best.atoms.shape
    ('antipodal pair', torch.Size([2, 2]))
    """

    kind: Literal["max", "min"]
    value: float
    lower: float
    upper: float
    atoms: Float[Tensor, "m d"] | None
    weights: Float[Tensor, " m"] | None
    case: str
    why: str
    unique: bool

    @property
    def gap(self) -> float:
        """Upper minus lower bound of the optimal value."""
        return self.upper - self.lower

    def energy(self, D: Any, beta: float = 1.0) -> float:
        """Energy of the atoms, computed anew."""
        if self.atoms is None:
            raise GeoattnError("the uniform measure has no atoms; its energy is `value`.")
        return float(interaction_energy(self.atoms, D, beta, self.weights))


def energy_optimum(
    D: Any, kind: Any = "max", beta: Any = 1.0, *, tolerance: Any = 1e-8, uniform: bool = True
) -> Optimum:
    r"""Largest or smallest energy over all measures on the sphere.

    .. math:: E(\mu) = \iint e^{\beta \langle x, D y\rangle} d\mu(x) \, d\mu(y)

    D symmetric; :math:`\lambda` are the eigenvalues of beta D.

    Maximum, always :math:`\max(e^{\lambda_{\max}}, \cosh\lambda_{\min})`: a point at the top eigenvector, or the pair
    :math:`\pm z` at the lowest. Proof: split D = P - N into its positive and negative part, :math:`a = x \cdot Py`,
    :math:`b = x \cdot Ny`. As :math:`e^a \sinh b` is a positive definite kernel, :math:`E \le \iint e^a \cosh b`, and
    :math:`e^a \cosh b \le e^{\lambda_{\max} s} \cosh(\lambda_{\min}(1 - s))` for some s in [0, 1], which is log-convex
    in s: its maximum is at an end.

    Minimum: :math:`e^{\lambda_{\min}}` at a point when :math:`\lambda_{\min} < 0` and 1 on the kernel when it is 0
    (both by Jensen); the uniform measure for a positive multiple of the identity; else a unique measure, found
    numerically to a duality gap of ``tolerance`` relative to the value (see `minimise_positive`). ``uniform=False``
    solves the isotropic case numerically too.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import energy_optimum
    >>> best = energy_optimum(torch.diag(torch.tensor([-1.0, 0.3])))
    >>> best.case, round(best.value, 6)  # cosh(1) > exp(0.3)
    ('antipodal pair', 1.543081)
    >>> energy_optimum(torch.eye(3), "min").case
    'uniform'
    """
    kind = read_choice("kind", kind, ("max", "min"))
    matrix = read_symmetric("D", D) * read_number("beta", beta)
    tolerance = read_number("tolerance", tolerance, above=0.0)
    values, vectors = torch.linalg.eigh(matrix)
    low, high = float(values[0]), float(values[-1])
    if max(abs(low), abs(high)) > 350:
        raise GeoattnError(
            f"the eigenvalues of beta D reach {max(abs(low), abs(high)):.4g}: the energies overflow. For the measures"
            " alone, scale beta down."
        )
    bottom, top = vectors[:, 0], vectors[:, -1]
    small = _FLAT * max(abs(low), abs(high))
    simple_low = len(values) < 2 or float(values[1]) - low > small
    simple_high = high - float(values[-2]) > small
    if kind == "max":
        point, pair = math.exp(high), math.cosh(low) if low < 0 else -math.inf
        if point >= pair:
            why = "E <= integral of e^a cosh b <= max(e^lambda_max, cosh lambda_min)"
            # delta_z and delta_{-z} are both optimal, so it is never unique
            return _closed("max", point, top[None], [1.0], "point", why, unique=False)
        why = "the odd part of the negative kernel only lowers the energy; cosh(x.Dy) <= cosh(lambda_min)"
        both = torch.stack([bottom, -bottom])
        return _closed("max", pair, both, [0.5, 0.5], "antipodal pair", why, unique=simple_low)
    if low < -small:
        why = "Jensen: E >= exp(<m, Dm>) >= exp(lambda_min), m the mean"
        return _closed("min", math.exp(low), bottom[None], [1.0], "point", why, unique=False)
    if low <= small:
        why = "Jensen with the root of D: E >= exp(|D^(1/2) m|^2) >= 1, equality exactly on the kernel"
        return _closed("min", 1.0, bottom[None], [1.0], "kernel", why, unique=False)
    if uniform and not simple_low and not simple_high and high - low <= small:
        value = uniform_energy(low, len(values))
        why = "the kernel is positive definite and invariant under rotations: strictly convex, one minimiser"
        return Optimum("min", value, value, value, None, None, "uniform", why, True)
    solved = minimise_positive(values, tolerance=tolerance)
    atoms = solved.atoms @ vectors.T
    why = f"(min m)^2 / E <= E_min <= E, m the potential; {solved.why}"
    return Optimum("min", solved.energy, solved.lower, solved.energy, atoms, solved.weights, "density", why, True)


def _closed(
    kind: Literal["max", "min"], value: float, atoms: Tensor, weights: list[float], case: str, why: str, *, unique: bool
) -> Optimum:
    w = torch.tensor(weights, dtype=torch.float64)
    return Optimum(kind, value, value, value, atoms, w, case, why, unique)
