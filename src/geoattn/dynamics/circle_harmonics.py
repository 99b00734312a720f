"""Sums of exp(<x, y>) over points of the plane, for x on the circle, by their Fourier series."""

from __future__ import annotations

import functools

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ive
from torch import Tensor

from geoattn._core.errors import GeoattnError

__all__ = ["bessel_ratios", "circle_sum", "circle_terms"]

_BLOCK = 1 << 20  # cosines in work at once
_SMALLEST = 1e-18  # of the first coefficient: what is left out
_MOST = 1 << 14
_SAME = 4e-16  # directions as near as this are one: rounding


@functools.lru_cache(maxsize=256)
def circle_terms(radius: float) -> int:
    """How many modes exp(r cos t) needs for r up to ``radius``: about 9 sqrt(r) + 15.

    Examples
    --------
    >>> circle_terms(1.0), circle_terms(100.0)
    (16, 94)
    """
    guess = int(10 * np.sqrt(radius) + 40)
    if guess > _MOST:
        return guess
    coefficients = ive(np.arange(guess), radius)
    small = np.flatnonzero(coefficients < _SMALLEST * coefficients[0])
    return max(2, int(small[0])) if len(small) else guess


def bessel_ratios(radius: Float[Tensor, " m"], terms: int, first: float) -> Float[Tensor, "terms m"]:
    """B_k(r) / B_0(r), k = 0 .. terms - 1, for a family with B_{k-1} - B_{k+1} = 2 (k + first) B_k / r.

    ``first`` = 0 is I_k, 1/2 the modified spherical Bessel functions. Downward continued fraction: no overflow.
    """
    ratio = torch.zeros_like(radius)
    safe = radius.clamp_min(1e-30)
    ratios = []
    for k in range(terms + 30, 0, -1):
        ratio = 1.0 / (2 * (k + first) / safe + ratio)
        if k < terms:
            ratios.append(ratio)
    return torch.cat([torch.ones_like(radius)[None], torch.stack(ratios[::-1]).cumprod(0)])[:terms]


def circle_sum(
    x: Float[Tensor, "*b m 2"], y: Float[Tensor, "*b n 2"], channels: Float[Tensor, "*b n c"], radius: float
) -> Float[Tensor, "*b m c"]:
    r""":math:`e^{-R} \sum_j e^{\langle x_i, y_j\rangle} c_j` for x on the circle and |y| at most R = ``radius``.

    .. math:: e^{r \cos(\theta - \psi)} = \sum_k I_k(r) e^{ik(\theta - \psi)}

    O((n + m) K) time, K = `circle_terms`; O(K) memory beside the points. Exact to about 1e-16 of the sum of |c_j|. The
    axes in front are sums side by side.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    >>> y = torch.tensor([[0.0, 2.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> circle_sum(x, y, torch.ones(2, 1).double(), 2.0) * torch.e**2  # 1 + 1/e
    tensor([[1.3679]], dtype=torch.float64)
    """
    terms = circle_terms(radius)
    if terms > _MOST:
        raise GeoattnError(f"a logit of {radius:.3g} needs more than {_MOST} modes; use engine='fused'.")
    x3, y3, c3 = (z.reshape(-1, *z.shape[-2:]) for z in (x, y, channels))
    together = max(1, _BLOCK // (terms * y3.shape[1]))
    parts = [slice(k, k + together) for k in range(0, len(x3), together)]
    return torch.cat([_sums(x3[p], y3[p], c3[p], radius, terms) for p in parts]).reshape(*x.shape[:-1], -1)


def _sums(
    x: Float[Tensor, "b m 2"], y: Float[Tensor, "b n 2"], channels: Float[Tensor, "b n c"], radius: float, terms: int
) -> Float[Tensor, "b m c"]:
    """Some runs side by side, some tokens at a time."""
    lengths = y.norm(dim=-1)
    even = bool((lengths.amax(-1) - lengths.amin(-1) <= 1e-15 * lengths.amax(-1)).all())
    here, there, rows = _directions(x), _directions(y), channels.mT.contiguous()  # products with few rows are quicker
    block = max(256, _BLOCK // terms)
    moments, waves = torch.zeros(*rows.shape[:2], 2 * terms, dtype=torch.float64, device=x.device), None
    for start in range(0, y.shape[1], block):
        part = slice(start, start + block)
        waves = weighted = _waves(there[..., part], terms)
        if not even:
            weighted = waves * _coefficients(lengths[:, part], terms, radius)[:, None]
        moments += rows[..., part] @ weighted.flatten(1, 2).mT
    by_mode = moments.unflatten(2, (2, terms))
    if even:  # one radius in each run: one column of coefficients
        by_mode *= _coefficients(lengths[:, :1], terms, radius).mT[:, :, None]
    by_mode[..., 1:] *= 2.0  # k and -k
    # keys along the tokens, all in one block: the same waves once more
    same = here.shape == there.shape and x.shape[1] <= block and bool((here - there).abs().amax() <= _SAME)
    outs = []
    for start in range(0, x.shape[1], block):
        if waves is None or not same:
            waves = _waves(here[..., start : start + block], terms)
        outs.append(moments @ waves.flatten(1, 2))
    return torch.cat(outs, dim=2).mT.contiguous()


def _coefficients(r: Float[Tensor, "b n"], terms: int, radius: float) -> Float[Tensor, "b terms n"]:
    """e^{-radius} I_k(r)."""
    scale = (r - radius).exp()[:, None]
    if r.shape[1] == 1:  # few: scipy has them at once, where the recurrence is a loop over the modes
        return torch.from_numpy(ive(np.arange(terms)[:, None], r.cpu().numpy()[:, None])).to(r) * scale
    ratios = bessel_ratios(r.flatten(), terms, 0.0).unflatten(1, r.shape)
    return ratios.movedim(0, 1) * torch.special.i0e(r)[:, None] * scale


def _directions(y: Float[Tensor, "b n 2"]) -> Float[Tensor, "2 b n"]:
    """Points of the plane over their norms; any direction will do for zero."""
    size = y.norm(dim=-1, keepdim=True)
    first = torch.tensor([1.0, 0.0], dtype=y.dtype, device=y.device)
    return torch.where(size > 0, y / size.clamp_min(1e-300), first).movedim(-1, 0).contiguous()


def _waves(z: Float[Tensor, "2 b n"], terms: int) -> Float[Tensor, "b 2 terms n"]:
    """cos(k angle) and sin(k angle), k = 0 .. terms - 1, of unit vectors z, by doubling: few roundings."""
    c, s = z[:, :, None]  # cosine and sine of ``done`` times the angle
    out = torch.empty(z.shape[1], 2, terms, z.shape[2], dtype=torch.float64, device=z.device)
    out[:, 0, 0], out[:, 1, 0] = 1.0, 0.0
    done = 1
    while done < terms:
        more = min(done, terms - done)
        (cosines, sines), new = out[:, :, :more].unbind(1), slice(done, done + more)
        torch.mul(cosines, c, out=out[:, 0, new]).addcmul_(sines, s, value=-1.0)
        torch.mul(sines, c, out=out[:, 1, new]).addcmul_(cosines, s)
        c, s = (c - s) * (c + s), 2 * c * s
        done += more
    return out
