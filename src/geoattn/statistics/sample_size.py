"""How many independent values a sample of dependent ones is worth."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.statistics.unimodality import knots_of_values

__all__ = ["effective_size"]

_LEVELS = np.linspace(0.05, 0.95, 19)


def effective_size(values: Any, groups: Any) -> int:
    r"""The number of independent values whose distribution function would be as uncertain as this one.

    .. math:: n_e = \min_t \frac{F(t)(1 - F(t))}{\widehat{\mathrm{var}} F(t)}

    with the variance over groups: values of one group may depend on each other in any way, groups are independent.
    t runs through the quantiles 0.05, 0.1, ..., 0.95. Between 4 and the number of values. Of a few dozen groups the
    variance is itself uncertain, and the minimum makes the answer too small rather than too large.

    Parameters
    ----------
    values
        (n,) finite numbers, for example the curvature of edges.
    groups
        (n,) the input each of them comes from.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.statistics import effective_size
    >>> once = np.random.default_rng(0).random(100)
    >>> 50 < effective_size(np.repeat(once, 30), np.repeat(np.arange(100), 30)) < 130
    True
    """
    n = knots_of_values(values)[3]  # checks them
    array, labels = np.asarray(values, dtype=np.float64), np.asarray(groups)
    if labels.shape != (n,):
        raise GeoattnError(f"groups must be one label for each of the {n} values; got shape {labels.shape}.")
    place = np.unique(labels, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(place)
    count = len(sizes)
    if count < 2:
        raise GeoattnError(f"at least 2 groups are needed to see how values depend within them; got {count}.")
    least = float(n)
    for t in np.unique(np.quantile(array, _LEVELS)):
        below = np.bincount(place, weights=array <= t)
        share = below.sum() / n
        if not 0 < share < 1:
            continue
        variance = count / (count - 1) * ((below - share * sizes) ** 2).sum() / n**2
        if variance > 0:  # groups may hold exactly their share
            least = min(least, share * (1 - share) / variance)
    return int(max(4, least))
