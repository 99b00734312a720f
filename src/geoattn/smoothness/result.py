"""The result of a local Lipschitz constant: value, certificate, worst direction, settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError

__all__ = ["Convergence", "Smoothness"]


class Convergence(IntEnum):
    """The outcome of the search for a local constant. There is a value only when it CONVERGED.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> found = ga.local_lipschitz(np.array([[1.0, 0.0], [0.0, 1.0]]), -np.eye(2))
    >>> found.status == ga.smoothness.Convergence.CONVERGED, found.status.sentence
    (True, 'the residual is below the tolerance and the starts agree')
    """

    CONVERGED = 0
    NOT_CONVERGED = 1  # the residual is above the tolerance
    STARTS_DISAGREE = 2  # each start found a singular value, but no two found the largest of them

    @property
    def sentence(self) -> str:
        """The outcome in words, with what to do."""
        return (
            "the residual is below the tolerance and the starts agree",
            "the residual is above the tolerance: allow more steps, or a larger tolerance",
            "no second start found the largest value: use more starts, or a smaller tolerance",
        )[self]


@dataclass(frozen=True, eq=False, repr=False)
class Smoothness(Displayed):
    r"""The local Lipschitz constant :math:`\|D_X f\|_2` of one map, or one per sample: then arrays of shape (b,).

    ``value`` is NaN where ``status`` is not CONVERGED. ``lower`` is |J v| / |v| for the best move v that was found; it
    is never above the constant, converged or not. ``residual`` is the larger of |J v - s u| and |J^T u - s v|,
    evaluated anew in float64 (or the dtype of the tokens for a function): there is a singular value within it of
    ``lower``. ``agreement`` is evidence that it is the largest one: the relative difference of the two largest values
    found from independent starts (NaN for one start). ``iterations`` counts the products J v of the slowest start.

    ``direction`` is v, as moves of the tokens (n, d), ``response`` is u, the unit move of the output; with a
    context that may move, ``context_direction`` is its part of v. |v| = |u| = 1 over all of it.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> tokens = np.random.default_rng(0).standard_normal((8, 3))
    >>> found = ga.local_lipschitz(tokens, -np.eye(3))
    >>> round(found.value, 4), found.relative_residual < 1e-4
    (2.3814, True)
    >>> moves = found.moves()  # how far each token moves in the worst direction
    >>> moves.shape, round(float((moves**2).sum()), 6)
    ((8,), 1.0)
    """

    value: float | Float[np.ndarray, " b"]
    lower: float | Float[np.ndarray, " b"]
    residual: float | Float[np.ndarray, " b"]
    agreement: float | Float[np.ndarray, " b"]
    iterations: int | Int[np.ndarray, " b"]
    status: Convergence | UInt8[np.ndarray, " b"]
    direction: Float[np.ndarray, "..."] | None
    response: Float[np.ndarray, "..."]
    context_direction: Float[np.ndarray, "..."] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def relative_residual(self) -> float | Float[np.ndarray, " b"]:
        """Residual over lower; 0 where both are 0."""
        low = np.asarray(self.lower)
        share = np.asarray(self.residual) / np.where(low > 0, low, 1.0)
        return float(share) if share.ndim == 0 else share

    def moves(self) -> Float[np.ndarray, "*b n"]:
        """How far each token moves in the worst direction: row norms of ``direction``; squares sum to one."""
        if self.direction is None:
            raise GeoattnError("only the context moves here; see context_direction.")
        return np.linalg.norm(self.direction, axis=-1)
