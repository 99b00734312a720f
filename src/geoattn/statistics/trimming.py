"""Leave zeros and outliers out of a distribution, as plots of the literature do, and say how much that hides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError

__all__ = ["Trimmed", "trim"]

_ZERO = 1e-9  # curvature below it is 0 but for rounding


@dataclass(frozen=True, eq=False, repr=False)
class Trimmed(Displayed):
    """The values that stay after `trim`, and the shares of those that do not.

    ``values`` are those that stay. ``zero_share`` and ``outlier_share`` are shares of all values; outliers lie outside
    of [``low``, ``high``]. ``negative_share_before`` and ``negative_share`` are shares of negative values, of all and
    of those that stay: where they differ, the trimmed distribution hides negative curvature.

    Examples
    --------
    >>> from geoattn.statistics import trim
    >>> kept = trim([0.0, 0.4, 0.5, 0.5, 0.6, 0.5, 0.4, -3.0])
    >>> kept.values.tolist(), kept.hidden_share
    ([0.4, 0.5, 0.5, 0.6, 0.5, 0.4], 0.25)
    >>> round(kept.low, 6), round(kept.high, 6)
    (0.25, 0.65)
    """

    values: Float[np.ndarray, " k"]
    zero_share: float
    outlier_share: float
    low: float
    high: float
    negative_share_before: float
    negative_share: float

    @property
    def hidden_share(self) -> float:
        """Share of the values that were left out."""
        return self.zero_share + self.outlier_share


def trim(values: Any, *, reach: Any = 1.5) -> Trimmed:
    r"""Leave out zeros, then what lies beyond Tukey's fences.

    .. math:: q_1 - r (q_3 - q_1) \le \kappa \le q_3 + r (q_3 - q_1)

    with the quartiles of the values that are not 0. The Ricci paper says that "outliers and zeros were removed as
    needed" from its plots (Appendix D.3), and not by which rule: this is the rule of the box plot. A number made from
    what stays must be marked as such. When all values are 0, none is left out.

    Parameters
    ----------
    values
        (n,) finite numbers.
    reach
        r; 1.5 is Tukey's.

    Examples
    --------
    >>> from geoattn.statistics import trim
    >>> kept = trim([0.0, 0.4, 0.5, 0.5, 0.6, 0.5, 0.4, -3.0])
    >>> kept.values.tolist(), kept.zero_share, kept.outlier_share
    ([0.4, 0.5, 0.5, 0.6, 0.5, 0.4], 0.125, 0.125)
    >>> kept.negative_share_before, kept.negative_share
    (0.125, 0.0)
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or len(array) == 0 or not np.isfinite(array).all():
        raise GeoattnError(f"values must be finite numbers (n,), at least one; got {array.dtype} {array.shape}.")
    if isinstance(reach, bool) or not isinstance(reach, (int, float)) or not 0 <= reach < np.inf:
        raise GeoattnError(f"reach must be a non-negative number; got {reach!r}.")
    array = array.astype(np.float64)
    zero = np.abs(array) <= _ZERO
    if zero.all():
        zero = np.zeros(len(array), dtype=bool)
    first, third = np.quantile(array[~zero], [0.25, 0.75])
    low, high = float(first - reach * (third - first)), float(third + reach * (third - first))
    out = ~zero & ((array < low) | (array > high))
    kept = array[~zero & ~out]
    return Trimmed(
        values=kept, zero_share=float(zero.mean()), outlier_share=float(out.mean()), low=low, high=high,
        negative_share_before=float((array < 0).mean()), negative_share=float((kept < 0).mean()),
    )  # fmt: skip
