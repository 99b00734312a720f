"""The result of a local Lipschitz constant: value, certificate, worst direction, settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from geoattn.errors import GeoattnError

__all__ = ["Convergence", "Smoothness"]


class Convergence(IntEnum):
    """Why there is a value, or none."""

    CONVERGED = 0
    NOT_CONVERGED = 1  # the residual is above the tolerance
    STARTS_DISAGREE = 2  # each start found a singular value, but no two found the largest of them

    @property
    def sentence(self) -> str:
        """For humans."""
        return (
            "the residual is below the tolerance and the starts agree",
            "the residual is above the tolerance: allow more steps, or a larger tolerance",
            "no second start found the largest value: use more starts, or a smaller tolerance",
        )[self]


@dataclass(frozen=True, eq=False)
class Smoothness:
    r"""The local Lipschitz constant :math:`\|D_X f\|_2` of one map, or one per sample: then arrays of shape (b,).

    ``value`` is NaN where ``status`` is not CONVERGED. ``lower`` is |J v| / |v| for the best move v found: never
    above the constant, converged or not. ``residual`` is the larger of |J v - s u| and |J^T u - s v|, evaluated
    anew in float64 (or the dtype of the tokens for a function): there is a singular value within it of ``lower``.
    That it is the largest is what ``agreement`` speaks for: the relative difference of the two largest values found
    from independent starts (NaN for one start). ``iterations`` counts products J v of the slowest start.

    ``direction`` is v, as moves of the tokens (n, d), ``response`` is u, the unit move of the output; with a
    context that may move, ``context_direction`` is its part of v. |v| = |u| = 1 over all of it.
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
