"""How far a flow of attention is from a gradient flow, for any matrices D and V."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from scipy.stats import t as student
from torch import Tensor

from geoattn._core.arguments import read_choice, read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.dynamics.gradient_derivative import NORMS, Derivative, Norm, covariant_derivative
from geoattn.dynamics.gradient_fit import energy_residual
from geoattn.dynamics.inputs import read_matrix, read_tokens, read_weights

__all__ = ["GradientShare", "gradient_share"]

Method = Literal["auto", "dense", "probes"]
METHODS = ("auto", "dense", "probes")
_DENSE = 1536  # n d up to which the whole derivative is formed
_PROBES_ENTRIES = 1 << 22  # numbers of probes in work at once


@dataclass(frozen=True, repr=False)
class GradientShare(Displayed):
    """Numbers that say how far a head is from a gradient flow.

    ``share`` is |sym J|^2 / |J|^2, 1 for gradient flows, 1/2 for a J without symmetry, 0 for a rotation; ``low`` and
    ``high`` are its 95 % interval (equal to it when ``method`` is dense). ``residual`` is the share of the velocity
    that no energy :math:`E_S` explains, on tokens that the fit of S did not see; NaN when it was not asked for.
    ``symmetry`` is |sym D|^2 / |D|^2, ``alignment`` the cosine of V and D. ``settings["norm"]`` is that of J.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import gradient_share, uniform_tokens
    >>> D = torch.diag(torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64))
    >>> found = gradient_share(uniform_tokens(6, 3), D, -D)
    >>> round(found.share, 6)
    1.0
    """

    share: float
    low: float
    high: float
    residual: float
    symmetry: float
    alignment: float
    method: Literal["dense", "probes"]
    settings: dict[str, Any] = field(default_factory=dict)
    version: str = __version__

    def to_dict(self) -> dict[str, float]:
        """The numbers by name, for one row of a table."""
        names = ("share", "low", "high", "residual", "symmetry", "alignment")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        """Short: the share with its interval, and what goes with it."""
        interval = "" if self.method == "dense" else f" in [{self.low:.4f}, {self.high:.4f}]"
        return (
            f"GradientShare({self.share:.6g}{interval}, residual {self.residual:.3g}, symmetry {self.symmetry:.3g},"
            f" alignment {self.alignment:.3g})"
        )

    def facts(self) -> dict[str, Any]:
        """What the result shows of itself."""
        return {**self.to_dict(), "method": self.method}


def gradient_share(
    tokens: Any,
    D: Any = None,
    V: Any = None,
    *,
    beta: Any = 1.0,
    weights: Any = None,
    norm: str = "round",
    method: str = "auto",
    probes: Any = 64,
    fit: bool = True,
    seed: Any = 0,
    normalise: bool = False,
) -> GradientShare:
    r"""Share of the derivative of an attention flow that is symmetric.

    The velocity of SA in the metric :math:`g = \mathrm{diag}(w_i m(x_i))` is the one-form

    .. math:: \alpha_i = w_i m(x_i) v_i = w_i P^\perp_{x_i} \sum_j w_j e^{\beta \langle x_i, D x_j\rangle} V x_j

    on the product of spheres. A flow is a gradient flow exactly when the covariant derivative
    :math:`J = \nabla\alpha` is symmetric at all tokens. J is that of the round spheres; its antisymmetric part does not
    depend on the connection. The share is :math:`|\mathrm{sym} J|^2 / |J|^2` in the Frobenius norm.

    Parameters
    ----------
    tokens
        (n, d) on the unit sphere. For a head of a model: the normed tokens, with their radius in D and V.
    D, V, beta, weights
        As in `simulate`; D = Q^T K and V of a head. None is the identity.
    norm
        The frames of the Frobenius norm: orthonormal for :math:`\sum_i w_i |dx_i|^2` (``round``) or for the metric of
        the flow, :math:`\sum_i w_i m(x_i) |dx_i|^2` (``mobility``). Both shares are 1 for gradient flows alone. With
        large logits a few pairs of tokens decide the first; in the second all tokens count.
    method
        ``dense`` forms J: O((n d)^2) memory. ``probes`` estimates :math:`|J|^2` and :math:`\mathrm{tr} J^2` by random
        signs (Hutchinson): O(n^2 d) time a probe, and a 95 % interval by the delta method. ``auto``: dense up to n d =
        1536.
    fit
        Also fit a symmetric S such that gradients of :math:`E_S = \frac12 \iint e^{\langle x, Sy\rangle}` explain the
        velocity at half of the tokens, and give the ``residual`` at others; see `energy_residual`.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import gradient_share
    >>> from geoattn.dynamics import uniform_tokens
    >>> D = torch.tensor([[1.0, 0.3, 0.0], [0.3, 0.5, 0.0], [0.0, 0.0, -1.0]], dtype=torch.float64)
    >>> round(gradient_share(uniform_tokens(6, 3), D, -D).share, 12)
    1.0
    """
    x = read_tokens(tokens, normalise=normalise).double()
    if x.ndim != 2:
        raise GeoattnError(f"tokens must be one (n, d) array; got shape {tuple(x.shape)}.")
    x = x / x.norm(dim=-1, keepdim=True)
    n, d = x.shape
    w = read_weights(weights, (n,), x)
    x, w = x[w > 0], w[w > 0]
    beta = read_number("beta", beta)
    D_, V_ = (_matrix(name, value, d, x) for name, value in (("D", D), ("V", V)))
    chosen, kind = read_choice("method", method, METHODS), cast("Norm", read_choice("norm", norm, NORMS))
    dense = x.numel() <= _DENSE if chosen == "auto" else chosen == "dense"
    scale = float(V_.norm()) * (1 + abs(beta) * float(D_.norm()))
    if dense:
        J = covariant_derivative(x, w, beta * D_, V_, kind)
        size = float(J.square().sum())
        _check(size, scale)
        share = low = high = float((J + J.mT).square().sum()) / (4 * size)
    else:
        count = read_count("probes", probes, least=4)
        J = Derivative(x, w, beta * D_, V_, kind)
        share, low, high = _by_probes(J, count, read_count("seed", seed, least=0), scale)
    residual = energy_residual(x, w, beta * D_, V_) if fit and len(x) > 1 else math.nan
    size = float(D_.square().sum())
    symmetric = float((D_ + D_.mT).square().sum()) / (4 * size) if size else math.nan
    both = math.sqrt(size) * float(V_.norm())
    about = {"n": n, "d": d, "beta": beta, "norm": kind, "probes": None if dense else probes, "seed": seed}
    return GradientShare(
        share=share, low=low, high=high, residual=residual, symmetry=symmetric,
        alignment=float((V_ * D_).sum()) / both if both else math.nan, method="dense" if dense else "probes",
        settings=about,
    )  # fmt: skip


def _by_probes(J: Derivative, count: int, seed: int, scale: float) -> tuple[float, float, float]:
    """(Share, low, high) from E |Ju|^2 = |J|^2 and E <J^T u, J u> = tr J^2."""
    draw = torch.Generator().manual_seed(seed)
    squares, traces = [], []
    together = max(1, _PROBES_ENTRIES // J.x.numel())
    for start in range(0, count, together):
        shape = (min(together, count - start), *J.x.shape)
        u = torch.randint(0, 2, shape, generator=draw).to(J.x) * 2 - 1
        right, left = J.apply(u), J.adjoint(u)
        # |J u|^2 and |J^T u|^2 have one mean; their average varies less
        squares.append((right.square() + left.square()).sum((-2, -1)) / 2)
        traces.append((left * right).sum((-2, -1)))
    a, b = torch.cat(squares), torch.cat(traces)
    _check(float(a.mean()), scale)
    ratio = float(b.mean() / a.mean())
    spread = float((b - ratio * a).std() / a.mean()) / math.sqrt(count)
    half = 0.5 * float(student.ppf(0.975, count - 1)) * spread
    share = (1 + ratio) / 2
    return share, max(0.0, share - half), min(1.0, share + half)


def _check(size: float, scale: float) -> None:
    if not math.isfinite(size):
        raise GeoattnError("the derivative overflows: logits are too far apart; use a smaller beta.")
    if not size > (1e-14 * scale) ** 2:
        raise GeoattnError("the field does not vary with the tokens (is V zero?), so that its share is 0/0.")


def _matrix(name: str, value: Any, d: int, like: Tensor) -> Tensor:
    matrix = read_matrix(name, value, d, like)
    if matrix is None:
        return torch.eye(d, dtype=like.dtype)
    if matrix.ndim != 2:
        raise GeoattnError(f"{name} must be one matrix here; got shape {tuple(matrix.shape)}.")
    return matrix
