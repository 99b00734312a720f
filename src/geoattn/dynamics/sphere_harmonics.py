"""Sums of exp(<x, y>) over points of space, for x on the 2-sphere, by spherical harmonics."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ive
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.circle_harmonics import bessel_ratios

__all__ = ["harmonics", "sphere_sum", "sphere_terms"]

_BLOCK = 1 << 12  # tokens in work at once: a degree of harmonics then fits in the cache
_SMALLEST = 1e-18
_MOST = 512


@functools.lru_cache(maxsize=256)
def sphere_terms(radius: float) -> int:
    """How many degrees exp(r cos t) needs for r up to ``radius``: about 9 sqrt(r) + 15.

    Examples
    --------
    >>> sphere_terms(1.0), sphere_terms(25.0)
    (17, 53)
    """
    guess = int(10 * np.sqrt(radius) + 40)
    if guess > _MOST:
        return guess
    degree = np.arange(guess)
    coefficients = (2 * degree + 1) * ive(degree + 0.5, max(radius, 1e-12))
    small = np.flatnonzero(coefficients < _SMALLEST * coefficients[0])
    return max(2, int(small[0])) if len(small) else guess


def harmonics(
    x: Float[Tensor, "n 3"], terms: int
) -> Iterator[tuple[Float[Tensor, "m n"], Float[Tensor, "m n"], Float[Tensor, "m n"]]]:
    r"""Real orthonormal spherical harmonics at unit vectors, degree by degree: (Q_l, C, S), rows m = 0 .. l.

    :math:`Y_{lm} = Q_{lm}(z) \, \mathrm{Re}\,(x + iy)^m` and the same with the imaginary part: polynomials, so the
    poles are points like any other. Recurrence of the fully normalised Legendre functions.
    """
    z = x[:, 2]
    powers = torch.empty(terms, len(x), dtype=torch.complex128, device=x.device)
    powers[0] = 1.0
    powers[1:] = torch.complex(x[:, 0], x[:, 1])
    powers = powers.cumprod(0)
    cosines, sines = powers.real.contiguous(), powers.imag.contiguous()
    before = torch.zeros(terms, len(x), dtype=x.dtype, device=x.device)
    now = torch.zeros_like(before)
    diagonal = math.sqrt(1 / (4 * math.pi))
    for degree in range(terms):
        if degree == 0:
            now[0] = diagonal
        else:
            m = torch.arange(degree, dtype=x.dtype, device=x.device)
            a = ((4 * degree**2 - 1) / (degree**2 - m**2)).sqrt()[:, None]
            square = ((degree - 1) ** 2 - m**2).clamp_min(0.0) / max(1, 4 * (degree - 1) ** 2 - 1)
            after = now[:degree] * z
            after.addcmul_(before[:degree], square.sqrt()[:, None], value=-1.0).mul_(a)
            before[:degree] = now[:degree]
            now[:degree] = after
            diagonal *= math.sqrt((2 * degree + 1) / (2 * degree)) * (math.sqrt(2) if degree == 1 else 1.0)
            now[degree] = diagonal
        yield now[: degree + 1], cosines[: degree + 1], sines[: degree + 1]


def sphere_sum(
    x: Float[Tensor, "m 3"], y: Float[Tensor, "n 3"], channels: Float[Tensor, "n c"], radius: float
) -> Float[Tensor, "m c"]:
    r""":math:`e^{-R} \sum_j e^{\langle x_i, y_j\rangle} c_j` for x on the 2-sphere and |y| at most R = ``radius``.

    .. math:: e^{r \langle x, u\rangle} = 4\pi \sum_{l,m} i_l(r) Y_{lm}(x) Y_{lm}(u), \qquad |u| = 1

    :math:`i_l` the modified spherical Bessel functions. O((n + m) L^2) time, L = `sphere_terms`; O(L^2) memory beside
    the points. Exact to about 1e-15 of the sum of |c_j|.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    >>> y = torch.tensor([[0.0, 2.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    >>> sphere_sum(x, y, torch.ones(2, 1).double(), 2.0) * torch.e**2  # 1 + 1/e
    tensor([[1.3679]], dtype=torch.float64)
    """
    terms = sphere_terms(radius)
    if terms > _MOST:
        raise GeoattnError(f"a logit of {radius:.3g} needs more than {_MOST} degrees; use engine='fused'.")
    lengths = y.norm(dim=-1)
    even = bool((lengths.amax() - lengths.amin()) <= 1e-15 * lengths.amax())
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=y.dtype, device=y.device)  # any direction will do for y = 0
    directions = torch.where(lengths[:, None] > 0, y / lengths.clamp_min(1e-300)[:, None], pole)
    moments = [torch.zeros(2, k + 1, channels.shape[1], dtype=torch.float64, device=x.device) for k in range(terms)]
    for start in range(0, len(y), _BLOCK):
        part = slice(start, start + _BLOCK)
        r = lengths[:1] if even else lengths[part]
        # e^{-R} i_0(r) = e^{r - R} (1 - e^{-2r}) / (2r)
        first = torch.where(r > 1e-8, -torch.expm1(-2 * r) / (2 * r.clamp_min(1e-8)), 1 - r) * (r - radius).exp()
        coefficients = 4 * math.pi * first * bessel_ratios(r, terms, 0.5)
        for k, (q, c, s) in enumerate(harmonics(directions[part], terms)):
            q = q * coefficients[k]
            moments[k][0] += (q * c) @ channels[part]
            moments[k][1] += (q * s) @ channels[part]
    out = torch.zeros(len(x), channels.shape[1], dtype=torch.float64, device=x.device)
    for start in range(0, len(x), _BLOCK):
        part = slice(start, start + _BLOCK)
        for k, (q, c, s) in enumerate(harmonics(x[part], terms)):
            out[part] += (q * c).mT @ moments[k][0] + (q * s).mT @ moments[k][1]
    return out
