"""Which eigenvalue wins in depth: oversmoothing or sharpening."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.spectral.linear_transformer import _square

__all__ = ["DepthLimit", "depth_limit"]


@dataclass(frozen=True, repr=False)
class DepthLimit(Displayed):
    r"""The direction that dominates :math:`(I + H \otimes A)^L` for large L.

    ``regime`` is "oversmoothing" (the pair has lambda^A = 1: all tokens become equal), "sharpening" (another eigenvalue
    of A: tokens stay distinct, rank one), or "undecided" when two moduli are within ``margin`` of each other. ``ratio``
    is the second largest modulus divided by the largest: the rate per layer at which the limit is approached.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import depth_limit
    >>> limit = depth_limit(np.array([[0.9, 0.1], [0.2, 0.8]]), np.diag([0.5, 0.2]))
    >>> limit.regime, round(limit.modulus, 6), round(limit.ratio, 6)
    ('oversmoothing', 1.5, 0.9)
    """

    regime: Literal["oversmoothing", "sharpening", "undecided"]
    attention_eigenvalue: complex
    weight_eigenvalue: complex
    modulus: float
    ratio: float


def depth_limit(attention: Any, H: Any, *, margin: Any = 1e-9) -> DepthLimit:
    r"""Which pair maximises :math:`|1 + \lambda^A \lambda^H|` (identical layers, fixed A, no MLP and no LayerNorm).

    For real spectra :math:`|1 + \lambda^A \lambda^H|` is convex in :math:`\lambda^A`, so that the winner has
    :math:`\lambda^A = 1` or the smallest eigenvalue. All :math:`\lambda^H > 0`: always oversmoothing. All
    :math:`\lambda^H \in [-1, 0)` and :math:`\lambda^A \ge 0`: the smallest eigenvalue of A wins. O(n^3 + d^3).
    Reference: Dovonon, Bronstein, Kusner 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import depth_limit
    >>> A = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> depth_limit(A, np.diag([0.5, 0.2])).regime, depth_limit(A, np.diag([-0.5, -0.2])).regime
    ('oversmoothing', 'sharpening')
    """
    if not 0 <= margin < 1:
        raise GeoattnError(f"margin must lie in [0, 1); got {margin!r}.")
    of_a, of_h = np.linalg.eigvals(_square(attention, "attention")), np.linalg.eigvals(_square(H, "H"))
    first = int(np.argmin(np.abs(of_a - 1)))
    size = np.abs(1 + np.outer(of_a, of_h))
    row, column = np.unravel_index(int(size.argmax()), size.shape)
    best = float(size[row, column])
    smooth, sharp = float(size[first].max()), float(np.delete(size, first, axis=0).max(initial=0.0))
    if abs(smooth - sharp) <= margin * best:
        regime = "undecided"
    else:
        regime = "oversmoothing" if smooth > sharp else "sharpening"
    others = np.sort(size.ravel())
    second = float(others[-2]) if len(others) > 1 else 0.0
    return DepthLimit(regime, complex(of_a[row]), complex(of_h[column]), best, second / best if best else float("nan"))
