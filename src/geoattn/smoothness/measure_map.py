"""Attention as a map of measures, and how much it amplifies distances between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.adversarial import adversarial_tokens
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.bounds import Bound, lipschitz_bounds
from geoattn.smoothness.inputs import read_matrices
from geoattn.smoothness.local import local_lipschitz_at
from geoattn.smoothness.wasserstein import TokenMeasure, wasserstein2

__all__ = ["MeanFieldConstant", "mean_field_constant", "mean_field_map", "mean_field_ratio"]


def mean_field_map(mu: TokenMeasure, A: Any, V: Any = None, *, causal: bool = False) -> TokenMeasure:
    r"""Attention as a map of measures, :math:`F(\mu) = (\Gamma_\mu)_\sharp\mu`.

    .. math:: \Gamma_\mu(x) = \frac{\int Vy\,e^{\langle Ax, y\rangle}\,d\mu(y)}{\int e^{\langle Ax, y\rangle}\,d\mu(y)},
        \qquad \Gamma_{\bar\mu}(s, x) = \Big(s,
        \frac{\int Vy\,e^{\langle Ax, y\rangle}1_{\tau \le s}\,d\bar\mu(\tau, y)}
        {\int e^{\langle Ax, y\rangle}1_{\tau \le s}\,d\bar\mu(\tau, y)}\Big)

    The second is masked attention (``causal``), on measures with positions; tokens at one position see each other. For
    n equal weights (and positions in order) F moves the points as attention on n tokens does. O(n^2 d).

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import TokenMeasure, mean_field_map
    >>> mu = TokenMeasure.of(np.array([[0.0], [2.0]]), np.array([0.75, 0.25]))
    >>> mean_field_map(mu, np.zeros((1, 1))).points.ravel()
    array([0.5, 0.5])
    """
    a, x = read_matrices(A, "A"), mu.points
    if tuple(a.shape) != (1, x.shape[1], x.shape[1]):
        raise GeoattnError(f"A must be one matrix {(x.shape[1], x.shape[1])} for these points; got {tuple(a.shape)}.")
    v = None if V is None else read_matrices(V, "V", columns=x.shape[1])
    if v is not None and len(v) != 1:
        raise GeoattnError(f"V must be one matrix; got {len(v)} heads.")
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # log 0; overflow is refused below
        logits = x @ a[0].cpu().numpy().T @ x.T + np.log(mu.weights)
    if not np.isfinite(logits.max(axis=1)).all():
        raise GeoattnError("logits overflow float64; scale A or the points down.")
    if causal:
        if mu.positions is None:
            raise GeoattnError("masked attention of a measure needs positions: TokenMeasure.of(points, positions=...).")
        logits = np.where(mu.positions[None, :] <= mu.positions[:, None], logits, -np.inf)
    top = logits.max(axis=1, keepdims=True)
    if not np.isfinite(top[mu.weights > 0]).all():
        raise GeoattnError("a point sees no mass at all.")
    P = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    sums = P.sum(axis=1, keepdims=True)
    moved = (P / np.where(sums > 0, sums, 1.0)) @ x  # points without mass that see nothing stay out of the way
    return TokenMeasure(moved if v is None else moved @ v[0].cpu().numpy().T, mu.weights, mu.positions)


def mean_field_ratio(mu: TokenMeasure, nu: TokenMeasure, A: Any, V: Any = None, *, causal: bool = False) -> float:
    r"""The ratio :math:`W_2(F(\mu), F(\nu)) / W_2(\mu, \nu)` of the mean-field map F; see `mean_field_map`.

    Positions, if there are any, stay coupled. The ratio of equal measures is an error.

    Examples
    --------
    With A = 0 every point moves to the mean, 1/2 and 1 here:

    >>> import numpy as np
    >>> from geoattn.smoothness import TokenMeasure, mean_field_ratio
    >>> mu, nu = TokenMeasure.of(np.array([[0.0], [1.0]])), TokenMeasure.of(np.array([[0.0], [2.0]]))
    >>> round(mean_field_ratio(mu, nu, np.zeros((1, 1))), 6)  # 0.5 / sqrt(0.5)
    0.707107
    """
    apart = wasserstein2(mu, nu)
    if apart == 0:
        raise GeoattnError("the two measures are equal; their ratio is not defined.")
    images = (mean_field_map(m, A, V, causal=causal) for m in (mu, nu))
    return wasserstein2(*images) / apart


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldConstant(Displayed):
    """The largest ratio that was found; what `mean_field_constant` returns.

    ``mu`` and ``nu`` are the pair of measures that has it, and ``found_by`` says how they were made. ``ratios`` holds
    all ratios that were tried. ``bound`` is the upper bound of the constant.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import mean_field_constant, mean_field_ratio
    >>> found = mean_field_constant(-np.eye(2), None, R=1.0, n=6, trials=3)
    >>> found.found_by, len(found.ratios), found.value <= found.bound.value
    ('adversarial tokens, worst move', 7, True)
    >>> abs(mean_field_ratio(found.mu, found.nu, -np.eye(2)) - found.value) < 1e-12
    True
    """

    value: float
    mu: TokenMeasure
    nu: TokenMeasure
    found_by: str
    ratios: Float[np.ndarray, " k"]
    bound: Bound
    settings: dict[str, Any] = field(default_factory=dict)


def mean_field_constant(
    A: Any, V: Any, R: Any, n: Any, *, causal: bool = False, trials: Any = 20, step: Any = 1e-4, seed: Any = 0
) -> MeanFieldConstant:
    """Empirical Lipschitz constant of the mean-field map on the ball of radius R: a lower estimate.

    Tries pairs of measures of n atoms: random pairs far apart; random clouds and the adversarial tokens, each moved a
    little in its own worst direction, which finds the local constant. O(trials n^3).

    Parameters
    ----------
    A, V
        (d, d); None for V is the identity.
    R, n
        Radius (above 0) and number of atoms of each measure.
    causal
        The masked map; positions are (i + 1) / n and stay coupled.
    step
        Length of the small moves, relative to R.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import mean_field_constant
    >>> found = mean_field_constant(-np.eye(2), None, R=1.0, n=8)
    >>> found.value <= found.bound.value, found.found_by
    (True, 'adversarial tokens, worst move')
    """
    a = read_matrices(A, "A")
    if len(a) != 1 or a.shape[1] != a.shape[2]:
        raise GeoattnError(f"A must be one square matrix; got {tuple(a.shape)}.")
    f = AttentionMap.of(a, V, causal=causal)
    n, R, trials = (
        read_count("n", n, least=1, most=10**18),
        read_number("R", R, above=0),
        read_count("trials", trials, least=0),
    )
    step = read_number("step", step, above=0)
    rng = np.random.default_rng(read_count("seed", seed, least=0))
    d = f.width
    positions = (np.arange(n) + 1.0) / n if causal else None

    def cloud() -> np.ndarray:
        x = rng.standard_normal((n, d))
        x *= (R * rng.random((n, 1)) ** (1 / d)) / np.linalg.norm(x, axis=1, keepdims=True)
        return x

    def nudged(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = x * (1 - step)  # so that the move stays in the ball
        found = local_lipschitz_at(f, torch.as_tensor(x)[None], batched=False, starts=1, tolerance=1e-4)
        assert found.direction is not None
        return x, x + step * R * found.direction

    pairs = []
    for _ in range(trials):
        pairs += [("random pair", cloud(), cloud()), ("random cloud, worst move", *nudged(cloud()))]
    try:
        pairs.append(("adversarial tokens, worst move", *nudged(adversarial_tokens(a, n, R))))
    except GeoattnError:  # no such tokens for this A
        pass
    if not pairs:
        raise GeoattnError("nothing to try: trials is 0 and there are no adversarial tokens for this A.")
    measures = [(TokenMeasure.of(x, positions=positions), TokenMeasure.of(y, positions=positions)) for _, x, y in pairs]
    ratios = np.array([mean_field_ratio(mu, nu, a, V, causal=causal) for mu, nu in measures])
    best = int(ratios.argmax())
    name = "masked upper, any n" if causal else "mean-field upper"
    settings = {"R": R, "n": n, "trials": trials, "step": step, "seed": seed, "causal": bool(causal)}
    bound = lipschitz_bounds(a, V, n, R, causal=causal)[name]
    value = float(ratios[best])
    assert math.isfinite(value)
    return MeanFieldConstant(value, *measures[best], pairs[best][0], ratios, bound, settings)
