"""Stationary measures of the flows: a test, and their linear stability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float
from scipy.optimize import brentq
from torch import Tensor

from geoattn._core.arguments import read_choice, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.drift import tangent
from geoattn.dynamics.inputs import read_symmetric, read_tokens
from geoattn.dynamics.interaction import SOFTMAX_FLOWS, read_interaction
from geoattn.dynamics.variants import push

__all__ = ["Stability", "eigenvector_measure", "pair_rates", "pair_threshold", "stability", "stationary_residual"]


def stationary_residual(
    tokens: Any, D: Any = None, beta: Any = 1.0, *, V: Any = "D", weights: Any = None, flow: str = "SA"
) -> Float[Tensor, "*b"]:
    r"""Largest velocity of an atom, :math:`\max_i |v_i|`: 0 for stationary measures. V = "D" is the gradient flow.

    Atoms without mass do not count.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import stationary_residual
    >>> D = torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64))
    >>> float(stationary_residual(torch.tensor([[0.0, 1.0], [0.0, -1.0]], dtype=torch.float64), D, weights=[0.3, 0.7]))
    0.0
    """
    x = read_tokens(tokens)
    V = D if isinstance(V, str) and V == "D" else V
    settings = read_interaction(x, beta=beta, D=D, V=V, flow=flow, weights=weights)
    flat = x.reshape(-1, *x.shape[-2:])
    out, _ = push(flat, settings, self_term=False, engine="blocks")
    speed = tangent(flat, out).norm(dim=-1)
    if settings.log_weights is not None:
        speed = torch.where(settings.log_weights > -1e3, speed, 0.0)
    return speed.amax(-1).reshape(x.shape[:-2])


def eigenvector_measure(D: Any, plus: Any, minus: Any) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"]]:
    r"""Atoms and masses of :math:`\sum_i p_i \delta_{z_i} + q_i \delta_{-z_i}`, z the eigenvectors of D, lowest first.

    Stationary iff :math:`\lambda_j (p_j - q_j) = 0` for all j other than i, for each i in play: one axis with any
    masses, or balanced pairs, or axes of the kernel.

    Examples
    --------
    >>> atoms, weights = eigenvector_measure([[1.0, 0.0], [0.0, 2.0]], [0.5, 0.25], [0.0, 0.25])
    >>> weights.tolist()
    [0.5, 0.25, 0.25]
    """
    matrix = read_symmetric("D", D)
    p, q = (np.asarray(m, dtype=float) for m in (plus, minus))
    if p.shape != (len(matrix),) or q.shape != p.shape or (p < 0).any() or (q < 0).any():
        raise GeoattnError(f"plus and minus must be {len(matrix)} masses each, not negative; got {p.shape}, {q.shape}.")
    if abs(p.sum() + q.sum() - 1) > 1e-9:
        raise GeoattnError(f"the masses must sum to one; got {p.sum() + q.sum():.9g}.")
    _, vectors = torch.linalg.eigh(matrix)
    masses = torch.from_numpy(np.stack([p, q], -1).ravel())
    atoms = torch.stack([vectors.T, -vectors.T], dim=1).reshape(-1, len(matrix))
    return atoms[masses > 0], masses[masses > 0]


@dataclass(frozen=True, repr=False)
class Stability(Displayed):
    """Rates of small perturbations of a configuration: the eigenvalues of the linearised flow, largest real part first.

    ``residual`` is the largest velocity: the rates mean something only where it is 0. ``unstable`` counts rates above
    ``tolerance``; rotations of the whole configuration that leave the energy alone give rates of 0.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.dynamics import Stability
    >>> found = Stability(np.array([0.5 + 0j, -1.0 + 0j]), residual=0.0, tolerance=1e-9)
    >>> found.growth, found.unstable
    (0.5, 1)
    """

    rates: Complex[np.ndarray, " r"]
    residual: float
    tolerance: float

    @property
    def growth(self) -> float:
        """The largest real part."""
        return complex(self.rates[0]).real

    @property
    def unstable(self) -> int:
        """How many directions grow."""
        return int((np.real(self.rates) > self.tolerance).sum())


def stability(
    tokens: Any,
    D: Any = None,
    beta: Any = 1.0,
    *,
    V: Any = "D",
    weights: Any = None,
    flow: str = "SA",
    tolerance: Any = 1e-9,
) -> Stability:
    """Linear stability of (n, d) atoms that may each have a mass: eigenvalues of the Jacobian on the tangent spaces.

    By automatic differentiation; O((n d)^3) time, for n d up to about a thousand. An atom moves as a whole: that it may
    split is not tested; give it twice, with half the mass, for that.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> round(stability(x).growth, 6)  # 1 - tanh(1): the pair is unstable for D = I
    0.238406
    """
    x = read_tokens(tokens).double()
    if x.ndim != 2:
        raise GeoattnError(f"stability is for one configuration (n, d); got shape {tuple(x.shape)}.")
    V = D if isinstance(V, str) and V == "D" else V
    settings = read_interaction(x, beta=beta, D=D, V=V, flow=flow, weights=weights)
    n, d = x.shape

    def velocity(y: Tensor) -> Tensor:
        unit = y / y.norm(dim=-1, keepdim=True)
        out, _ = push(unit[None], settings, engine="blocks")
        return tangent(unit, out[0])

    jacobian: Any = torch.autograd.functional.jacobian(velocity, x, vectorize=False)
    frames = torch.linalg.qr(torch.cat([x[..., None], torch.eye(d).to(x).expand(n, d, d)], dim=-1)).Q[..., 1:]
    on_tangents = torch.einsum("iak,iajb,jbl->ikjl", frames, jacobian, frames).reshape(n * (d - 1), n * (d - 1))
    rates = torch.linalg.eigvals(on_tangents).numpy()
    rates = rates[np.argsort(-rates.real, kind="stable")]
    residual = float(velocity(x).norm(dim=-1).max())
    return Stability(rates, residual, read_number("tolerance", tolerance, least=0.0))


def pair_rates(eigenvalue: Any, other: Any, p: Any = 0.5, flow: str = "SA") -> tuple[float, float]:
    r"""The two rates of :math:`p \delta_z + (1-p) \delta_{-z}` against a push along another eigenvector, V = D.

    z has the eigenvalue :math:`\lambda`, the other eigenvector :math:`\mu`. With :math:`q = 1 - p`, rows divided by
    :math:`Z = p e^{\lambda} + q e^{-\lambda}` (and p, q exchanged) for SA, they are the eigenvalues of

    .. math:: \begin{pmatrix} -\lambda (p e^\lambda - q e^{-\lambda}) + p e^\lambda \mu & q e^{-\lambda} \mu \\
              p e^{-\lambda} \mu & -\lambda (q e^\lambda - p e^{-\lambda}) + q e^\lambda \mu \end{pmatrix}

    p = 1/2: the larger is :math:`\mu - \lambda \tanh \lambda` (SA), times :math:`\cosh\lambda` for USA.

    Examples
    --------
    >>> round(pair_rates(1.0, 0.9)[0], 6)  # 0.9 - tanh(1)
    0.138406
    """
    lam, mu = read_number("eigenvalue", eigenvalue), read_number("other", other)
    p = read_number("p", p, least=0.0)
    if p > 1:
        raise GeoattnError(f"p is the share of one point, from 0 to 1; got {p:g}.")
    q, up, down = 1 - p, math.exp(lam), math.exp(-lam)
    first = np.array([-lam * (p * up - q * down) + p * up * mu, q * down * mu])
    second = np.array([p * down * mu, -lam * (q * up - p * down) + q * up * mu])
    if read_choice("flow", flow, SOFTMAX_FLOWS) == "SA":
        first, second = first / (p * up + q * down), second / (q * up + p * down)
    rates = np.sort(np.linalg.eigvals(np.stack([first, second])).real)
    return float(rates[1]), float(rates[0])


def pair_threshold(eigenvalue: Any, p: Any = 0.5) -> float:
    r"""The other eigenvalue at which the pair :math:`p \delta_z + (1-p)\delta_{-z}` turns unstable.

    :math:`\lambda \tanh \lambda` at p = 1/2.
    Both flows have the same threshold: the rows of their matrices differ by positive factors.

    Examples
    --------
    >>> round(pair_threshold(1.0), 5), round(pair_threshold(1.0, 0.3), 4)
    (0.76159, 0.6566)
    """
    lam = read_number("eigenvalue", eigenvalue, above=0.0)
    threshold = brentq(lambda mu: pair_rates(lam, mu, p, "USA")[0], 0.0, lam, xtol=1e-14)
    return float(threshold)  # pyright: ignore[reportArgumentType]
