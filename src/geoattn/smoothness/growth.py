"""How the local Lipschitz constant grows with the number of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.inputs import read_tensor
from geoattn.smoothness.local import local_lipschitz

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Growth", "PowerLaw", "fit_power_law", "lipschitz_growth"]


@dataclass(frozen=True, eq=False, repr=False)
class PowerLaw(Displayed):
    """Values fitted by factor * n^exponent, with bootstrap intervals.

    ``low`` and ``high`` are the percentile interval of the exponent at ``level``; ``r2`` the share of the variance of
    the logarithms that the line explains (NaN when they do not vary).

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import fit_power_law
    >>> law = fit_power_law(np.array([4, 16, 64]), np.array([2.1, 3.9, 8.2]))
    >>> round(law.exponent, 3), law.contains(0.5), law.contains(0.25)
    (0.491, True, False)
    """

    exponent: float
    factor: float
    low: float
    high: float
    level: float
    r2: float
    bootstrap: Float[np.ndarray, " k"]

    def contains(self, exponent: float) -> bool:
        """Whether the interval holds this exponent, such as 1/2 or 1/4."""
        return self.low <= exponent <= self.high


@dataclass(frozen=True, eq=False, repr=False)
class Growth(Displayed):
    """Local constants of token clouds, by their number of tokens, and the power law through them.

    ``radius`` is the largest norm of a token of each cloud, ``rms`` the root mean square. A constant that did not
    converge is NaN and is not part of the fit; ``converged`` marks the others.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import adversarial_tokens, lipschitz_growth
    >>> growth = lipschitz_growth([adversarial_tokens(-np.eye(3), n, 5.0) for n in (5, 17, 65)], -np.eye(3))
    >>> growth.to_pandas()[["n", "value"]].to_numpy().round(2).tolist()
    [[5.0, 2.0], [17.0, 4.0], [65.0, 8.0]]
    >>> round(growth.fit.exponent, 2)
    0.54
    """

    n: Int[np.ndarray, " k"]
    value: Float[np.ndarray, " k"]
    radius: Float[np.ndarray, " k"]
    rms: Float[np.ndarray, " k"]
    residual: Float[np.ndarray, " k"]
    converged: Bool[np.ndarray, " k"]
    fit: PowerLaw
    settings: dict[str, Any] = field(default_factory=dict)

    def to_pandas(self) -> pd.DataFrame:
        """One row per cloud."""
        import pandas as pd

        names = ("n", "value", "radius", "rms", "residual", "converged")
        return pd.DataFrame({name: getattr(self, name) for name in names})


def lipschitz_growth(
    clouds: Iterable[Any],
    A: Any,
    V: Any = None,
    *,
    level: Any = 0.95,
    bootstrap: Any = 1000,
    seed: Any = 0,
    **options: Any,
) -> Growth:
    r"""Local Lipschitz constants of clouds of different sizes under one map, and the exponent of their growth in n.

    Parameters
    ----------
    clouds
        Token clouds (n, d), such as the inputs of one attention layer for texts of different lengths; at least two
        different n.
    A, V
        As in `local_lipschitz`; ``options`` (W, bias, causal, norm, search, ...) go there, too.
    level, bootstrap
        Of the interval, and how many resamples make it.

    Examples
    --------
    Worst-case tokens grow like a square root:

    >>> import numpy as np
    >>> from geoattn.smoothness import adversarial_tokens, lipschitz_growth
    >>> A = np.diag([-1.0, 0.5])
    >>> growth = lipschitz_growth([adversarial_tokens(A, n, 5.0) for n in (5, 17, 65, 257)], A)
    >>> round(growth.fit.exponent, 2), growth.fit.contains(0.25)
    (0.53, False)
    """
    n, value, radius, rms, residual = [], [], [], [], []
    for cloud in clouds:
        x = read_tensor(cloud, "a cloud")
        if x.ndim != 2:
            raise GeoattnError(f"each cloud must have shape (n, d); cloud {len(n)} has {tuple(x.shape)}.")
        try:
            found = local_lipschitz(x, A, V, seed=seed, **options)
        except GeoattnError as error:
            raise GeoattnError(f"cloud {len(n)}: {error}") from None
        norms = x.norm(dim=1)
        n.append(len(x))
        value.append(found.value)
        residual.append(found.residual)
        radius.append(float(norms.max()))
        rms.append(float(norms.square().mean().sqrt()))
    values = np.array(value, dtype=np.float64)
    converged = np.isfinite(values)
    sizes = np.array(n, dtype=np.int64)
    fit = fit_power_law(sizes[converged], values[converged], level=level, bootstrap=bootstrap, seed=seed)
    settings = {"level": fit.level, "bootstrap": bootstrap, "seed": seed, "clouds": len(n)}
    return Growth(sizes, values, np.array(radius), np.array(rms), np.array(residual), converged, fit, settings)


def fit_power_law(n: Any, values: Any, *, level: Any = 0.95, bootstrap: Any = 1000, seed: Any = 0) -> PowerLaw:
    r"""Least squares of log value = log factor + exponent * log n, with a bootstrap interval of the exponent.

    Values are resampled with replacement among those of equal n where each n has at least two, which keeps the design;
    else pairs (n, value) are resampled, and resamples with one n alone are drawn anew.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import fit_power_law
    >>> law = fit_power_law(np.array([4, 16, 64, 256]), 3 * np.array([2.0, 4.0, 8.0, 16.0]))
    >>> round(law.exponent, 6), round(law.factor, 6), law.contains(0.5)
    (0.5, 3.0, True)
    """
    sizes, y = np.asarray(n, dtype=np.float64).ravel(), np.asarray(values, dtype=np.float64).ravel()
    if sizes.shape != y.shape:
        raise GeoattnError(f"n and values must have the same length; got {sizes.size} and {y.size}.")
    if not ((sizes > 0) & np.isfinite(sizes) & (y > 0) & np.isfinite(y)).all():
        raise GeoattnError("n and values must be positive and finite: a power law has logarithms of them.")
    if len(np.unique(sizes)) < 2:
        raise GeoattnError("a fit needs values at two different n at least.")
    level, bootstrap = read_number("level", level, above=0), read_count("bootstrap", bootstrap, least=1)
    if level >= 1:
        raise GeoattnError(f"level must be below 1; got {level:g}.")
    rng = np.random.default_rng(read_count("seed", seed, least=0))
    log_n, log_y = np.log(sizes), np.log(y)
    exponent, offset = np.polyfit(log_n, log_y, 1)
    rest = log_y - offset - exponent * log_n
    spread = float(((log_y - log_y.mean()) ** 2).sum())
    slopes = _resampled_slopes(log_n, log_y, bootstrap, rng)
    low, high = np.quantile(slopes, [(1 - level) / 2, (1 + level) / 2])
    # rounding alone must not put the estimate of an exact law outside
    low, high = min(float(low), float(exponent)), max(float(high), float(exponent))
    r2 = 1 - float((rest**2).sum()) / spread if spread > 0 else float("nan")
    return PowerLaw(float(exponent), float(np.exp(offset)), low, high, level, r2, slopes)


def _resampled_slopes(
    x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, " b"]:
    groups = [np.flatnonzero(x == value) for value in np.unique(x)]
    if all(len(group) > 1 for group in groups):
        chosen = np.concatenate([rng.choice(group, (count, len(group))) for group in groups], axis=1)
    else:
        chosen = rng.integers(len(y), size=(count, len(y)))
        while (alone := np.ptp(x[chosen], axis=1) == 0).any():
            chosen[alone] = rng.integers(len(y), size=(int(alone.sum()), len(y)))
    dx, dy = (t[chosen] - t[chosen].mean(axis=1, keepdims=True) for t in (x, y))
    return (dx * dy).sum(axis=1) / (dx**2).sum(axis=1)
