"""Bounds of the Lipschitz constant of attention on a ball, each with what it bounds and when it holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn.smoothness.head_bounds import HeadBounds, log
from geoattn.smoothness.inputs import read_matrices

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["L2_ATTENTION", "Bound", "LipschitzBounds", "lipschitz_bounds"]

_DISCRETE = "Lip of f on n tokens in the ball of radius R, l2 norm on (R^d)^n"
L2_ATTENTION = "Lip of L2 attention with tied queries and keys on all of (R^d)^n, l2 norm"
_ANY_MASK = "any mask (printed without one; implied by the sharper bound)"
_CASTIN = "Castin, Ablin and Peyre 2024"
_MEAN_FIELD = "Lip of the mean-field map on probability measures on the ball of radius R, Wasserstein-2"


@dataclass(frozen=True, repr=False)
class Bound(Displayed):
    """One bound: its name, what it bounds, from which side, its value as a logarithm, and the hypotheses.

    Where a hypothesis fails ``applies`` is False, ``reason`` says which, and the value is NaN. ``asymptotic``: holds up
    to a factor that tends to one in a limit, so it certifies nothing at one R. ``derived``: follows in a few lines
    from the formula of the Jacobian and is not in the papers.
    """

    name: str
    bounds: str
    side: Literal["upper", "lower"]
    log_value: float
    conditions: tuple[str, ...]
    applies: bool = True
    reason: str = ""
    asymptotic: bool = False
    derived: bool = False
    reference: str = ""

    @property
    def value(self) -> float:
        """The bound; inf when it is too large for a float (``log_value`` still has it), NaN when it does not apply."""
        return math.inf if self.log_value > 709.0 else math.exp(self.log_value)

    @property
    def overflows(self) -> bool:
        """True when ``value`` is inf only because floats end there."""
        return self.log_value > 709.0


@dataclass(frozen=True, repr=False)
class LipschitzBounds(Displayed):
    """All bounds of one map, by name. Bounds that do not apply are included; their value is NaN.

    ``gamma`` (h,) is gamma of each head, NaN without a real eigenvalue; ``r2_gamma`` is R^2 gamma. When it is above
    about half of log n, some tokens in the ball make the constant grow like sqrt(n).

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> bounds = ga.lipschitz_bounds(-np.eye(2), None, n=10, R=2.0)
    >>> [bound.name for bound in bounds.applying("upper")]
    ['discrete upper', 'discrete upper, sharper', 'mean-field upper']
    >>> round(bounds["discrete upper, sharper"].value, 2), bounds.r2_gamma
    (19.81, array([4.]))
    >>> bounds["masked upper, any n"].reason
    "for the causal mask; without a mask see 'mean-field upper'"
    """

    items: tuple[Bound, ...]
    gamma: Float[np.ndarray, " h"]
    r2_gamma: Float[np.ndarray, " h"]
    settings: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Bound:
        for bound in self.items:
            if bound.name == name:
                return bound
        names = [bound.name for bound in self.items]
        near = did_you_mean(name, names)
        raise GeoattnError(f"no bound is called {name!r}; there are {', '.join(map(repr, names))}.{near}")

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.items)

    def to_pandas(self) -> pd.DataFrame:
        """One row per bound: name, side, value, whether it applies, and why not."""
        import pandas as pd

        columns = ("name", "side", "value", "applies", "asymptotic", "reason")
        return pd.DataFrame({name: [getattr(bound, name) for bound in self.items] for name in columns})

    def applying(self, side: Literal["upper", "lower"] | None = None) -> tuple[Bound, ...]:
        """Those that hold here and are not asymptotic."""
        return tuple(b for b in self.items if b.applies and not b.asymptotic and side in (None, b.side))


def lipschitz_bounds(A: Any, V: Any, n: Any, R: Any, *, W: Any = None, causal: bool = False) -> LipschitzBounds:
    r"""Bounds of the Lipschitz constant of attention on token clouds of n tokens in the ball of radius R.

    :math:`f(X)_i = V \sum_j P_{ij} x_j` with logits :math:`\langle A x_i, x_j\rangle`, a = ||A||_2, v = ||V||_2;
    :math:`\gamma = \max(-\gamma_\delta, \gamma_1/8)` for the largest and smallest real eigenvalue of A;
    :math:`P = 1/(1 + (n-1) e^{-2R^2\gamma})`.

    =========================  =====================================================================  ===============
    name                       bound                                                                  hypotheses
    =========================  =====================================================================  ===============
    discrete upper             :math:`\sqrt3\,v\,(a^2R^4(4n+1) + n)^{1/2}`                            one head
    discrete upper, sharper    :math:`v\,(\sqrt n\,(1 + aR^2) + aR^2)`                                one head; any mask
    discrete lower             :math:`P\sqrt{n-1}`                                                    V = I
    discrete lower, any V      :math:`P\sqrt{n-1}\max(|Vu|(1+2\gamma R^2(1-P)), ||V u^\perp||)`       one head
    quadratic lower            :math:`\frac{2k}n R^2|Vw||A^\top w| - \frac vn`, k = floor((n-1)/2)    n >= 3
    mean-field upper           :math:`v(1 + 3aR^2)e^{2aR^2}`                                          no mask
    masked upper, any n        :math:`v(2(1 + 2aR^2)e^{2aR^2} + aR^2)`                                causal
    mean-field lower           :math:`\frac\gamma2 R^2e^{\gamma R^2}`, asymptotic                     V = I
    mean-field lower, finite   the discrete lower one at the n next to :math:`e^{2\gamma R^2}`        one head
    multi-head upper           :math:`\sum_h ||W_h||\,(\text{discrete upper of head } h)`             several heads
    multi-head upper, sharper  the same with the sharper bound                                        any mask
    =========================  =====================================================================  ===============

    The mean-field upper bound also bounds the discrete constant for every n, and any discrete lower bound the
    mean-field constant. "Sharper" is the triangle inequality on the three terms of the Jacobian, with sum_i P_ij <= n
    and a variance of at most R^2; it needs rows of weights that sum to one and nothing else, so masks are covered. It
    is never above the first. In "discrete lower, any V" with a causal mask the term of |Vu| is at most
    :math:`|Vu|\sqrt{n-1}`.

    The mean-field upper bound is printed for the masked map, too. For Wasserstein-2, or the l2 norm of tokens, it does
    not hold there: at A = 0 masked attention takes running means, of norm up to 2 (Hardy's inequality), and the bound
    is 1. "Masked upper, any n" is the same argument with :math:`P_{ij} \le e^{2aR^2}/i` and Hardy's 2.

    u is the eigenvector of gamma, w the left singular vector of A.

    Parameters
    ----------
    A, V
        (d, d), or (h, d, d) for h heads; None for V is the identity.
    n, R
        Number of tokens, and the largest norm of a token (zero is allowed).
    W
        (h, e, p): output projections of the heads, :math:`f = \sum_h W_h f_h`.
    causal
        The asymptotic bound is not known for the masked map and then does not apply.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> bounds = ga.lipschitz_bounds(-np.eye(2), None, n=101, R=3.0)
    >>> bounds["discrete lower"].value, bounds["discrete upper"].value > 10
    (10.0, True)
    >>> bounds.r2_gamma
    array([9.])

    References: Castin, Ablin and Peyre, How Smooth Is Attention?, 2024; Geshkovski, Letrouit, Polyanskiy and Rigollet,
    2023 (mean-field upper); Kim, Papamakarios and Mnih, 2021 (growth like R^2).
    """
    a = read_matrices(A, "A")
    if a.shape[1] != a.shape[2]:
        raise GeoattnError(f"A must be square, as tokens attend to each other; got {tuple(a.shape)}.")
    v = None if V is None else read_matrices(V, "V", columns=a.shape[2])
    w = None if W is None else read_matrices(W, "W", columns=a.shape[2] if v is None else v.shape[1])
    heads = {len(t) for t in (a, v, w) if t is not None}
    if len(heads) != 1:
        raise GeoattnError(f"A, V and W must have the same number of heads; got {sorted(heads)}.")
    n, R = read_count("n", n, least=1, most=10**18), read_number("R", R, least=0)
    size = max(float(np.linalg.norm(m.cpu().numpy(), 2)) for m in a)
    if R > 1e100 or size > 1e100:
        raise GeoattnError(f"R and the norm of A must be at most 1e100; got {R:g} and {size:g}.")
    matrices = [HeadBounds(a[h].cpu().numpy(), None if v is None else v[h].cpu().numpy(), n, R) for h in range(len(a))]
    if len(matrices) == 1 and w is None:
        items = _single(matrices[0], causal)
    else:
        items = _several(matrices, w)
    items.append(
        Bound(
            "L2 attention upper", L2_ATTENTION, "upper", math.nan, ("L2 attention",), False,
            "this is dot-product attention, which has no Lipschitz constant on all of (R^d)^n; see l2_attention_bound",
        )
    )  # fmt: skip
    gamma = np.array([m.gamma for m in matrices])
    settings = {"n": n, "R": R, "heads": len(matrices), "causal": bool(causal)}
    return LipschitzBounds(tuple(items), gamma, R**2 * gamma, settings)


def _single(head: HeadBounds, causal: bool) -> list[Bound]:
    real = "A has a real eigenvalue"
    no_real = "" if head.pair is not None else "A has no real eigenvalue"
    no_identity = "" if head.identity else "V is not the identity"
    unmasked = "for attention without a mask" if causal else ""
    masked = "" if causal else "for the causal mask; without a mask see 'mean-field upper'"

    def made(name: str, log_value: Any, conditions: tuple[str, ...], *against: str, **more: Any) -> Bound:
        reason = next((text for text in against if text), "")
        what = more.pop("bounds", _DISCRETE)
        side = "upper" if "upper" in name else "lower"
        return Bound(name, what, side, math.nan if reason else log_value(), conditions, not reason, reason, **more)

    return [
        made("discrete upper", head.upper, ("one head", _ANY_MASK), reference=_CASTIN),
        made("discrete upper, sharper", head.sharper, ("one head", "any mask"), derived=True),
        made(
            "discrete lower", head.lower, ("V = I", real, "any mask"), no_identity, no_real, reference=_CASTIN,
        ),
        made(
            "discrete lower, any V", lambda: head.lower_any(causal), (real, "any mask"), no_real, derived=True,
        ),
        made(
            "quadratic lower", head.quadratic, ("n >= 3", "any mask"), "" if head.n >= 3 else "n is below 3",
            derived=True, reference="Kim, Papamakarios and Mnih 2021 for the growth like R^2; the constant is derived",
        ),
        made(
            "mean-field upper", head.mean_field_upper, ("one head", "no mask"),
            "fails for the masked map: see 'masked upper, any n'" if causal else "",
            bounds=_MEAN_FIELD + "; hence of f for every n",
            reference="Geshkovski et al. 2023, by " + _CASTIN,
        ),
        made(
            "masked upper, any n", head.masked_upper, ("one head", "causal mask"), masked,
            bounds=_DISCRETE + ", for every n; masked mean-field map, W2 between equal positions", derived=True,
        ),
        made(
            "mean-field lower", head.mean_field_lower,
            ("V = I", real, "R -> infinity with n ~ exp(2 gamma R^2)", "no mask"),
            no_identity, no_real, unmasked, bounds=_MEAN_FIELD, asymptotic=True, reference=_CASTIN,
        ),
        made(
            "mean-field lower, finite", head.mean_field_lower_finite, (real, "no mask"), no_real, unmasked,
            bounds=_MEAN_FIELD, derived=True,
        ),
    ]  # fmt: skip


def _several(heads: list[HeadBounds], w: Float[Tensor, "h e p"] | None) -> list[Bound]:
    norms = [0.0 if w is None else log(float(np.linalg.norm(w[h].cpu().numpy(), 2))) for h in range(len(heads))]
    return [
        Bound(
            "multi-head upper", _DISCRETE, "upper",
            float(np.logaddexp.reduce([x + h.upper() for x, h in zip(norms, heads, strict=True)])),
            ("f = sum of W_h f_h", _ANY_MASK), reference=_CASTIN,
        ),
        Bound(
            "multi-head upper, sharper", _DISCRETE, "upper",
            float(np.logaddexp.reduce([x + h.sharper() for x, h in zip(norms, heads, strict=True)])),
            ("f = sum of W_h f_h", "any mask"), derived=True,
        ),
    ]  # fmt: skip
