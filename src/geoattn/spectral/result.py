"""The result of a spectrum: eigenvalues, what follows from them, and how far they may be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Complex, Float

from geoattn._core.display import Displayed
from geoattn.graph.axes import name_axes

__all__ = ["Spectrum"]


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Displayed):
    r"""Eigenvalues of attention maps, and properties of the Markov chains that they are.

    ``eigenvalues`` (..., n), complex, by falling modulus, the Perron eigenvalue 1 first; NaN beyond the number of real
    tokens. Large maps have the first ones only. ``smallest_real`` is the smallest real part of all of them,
    :math:`\lambda^A_1` of the Ricci paper. ``stationary`` (..., n) is :math:`\pi = \pi A`. ``irreversibility`` is
    :math:`\max_{ij} |\pi_i A_{ij} - \pi_j A_{ji}| / \max_{ij} \pi_i A_{ij}`, 0 for a reversible chain, whose
    eigenvalues are real. ``dobrushin`` is the largest total variation between two rows. ``residual`` bounds the error
    of the arithmetic: of the trace when all eigenvalues are there, else of the eigenvectors.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> found = ga.spectrum(np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> found.eigenvalues.real.round(6), found.stationary.round(4)
    (array([1. , 0.7]), array([0.6667, 0.3333]))
    >>> round(float(found.gap), 6), round(float(found.layers_to_halve), 3), bool(found.reversible)
    (0.3, 1.943, True)
    """

    eigenvalues: Complex[np.ndarray, "... k"]
    smallest_real: Float[np.ndarray, "..."]
    stationary: Float[np.ndarray, "... n"]
    irreversibility: Float[np.ndarray, "..."]
    dobrushin: Float[np.ndarray, "..."]
    residual: Float[np.ndarray, "..."]
    tokens: np.ndarray
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def second(self) -> Float[np.ndarray, "..."] | float:
        r"""Modulus of the second eigenvalue: tokens come together like :math:`|\lambda_2|^t` under :math:`A^t`."""
        if self.eigenvalues.shape[-1] < 2:
            return np.full(self.eigenvalues.shape[:-1], np.nan)
        return np.abs(self.eigenvalues[..., 1])

    @property
    def gap(self) -> Float[np.ndarray, "..."] | float:
        r"""Absolute spectral gap :math:`1 - |\lambda_2|`."""
        return 1.0 - self.second

    @property
    def layers_to_halve(self) -> Float[np.ndarray, "..."] | float:
        r"""How often A is applied until tokens differ half as much, :math:`\log 2 / -\log|\lambda_2|`; may be inf."""
        with np.errstate(divide="ignore"):
            return np.log(2.0) / np.abs(np.log(np.minimum(self.second, 1.0)))

    @property
    def reversible(self) -> Bool[np.ndarray, "..."] | np.bool:
        """Whether detailed balance holds to rounding."""
        return self.irreversibility < 1e-9

    @property
    def laplacian(self) -> Complex[np.ndarray, "... k"]:
        r"""Eigenvalues :math:`1 - \lambda` of :math:`I - A`, in the order of ``eigenvalues``; real when reversible."""
        return 1.0 - self.eigenvalues

    def to_pandas(self, axes: Sequence[str] | None = None) -> Any:
        """One row per map; ``axes`` names the axes before the tokens, as in `Curvature.to_pandas`."""
        import pandas as pd

        shape = self.dobrushin.shape
        index = np.stack(np.unravel_index(np.arange(int(np.prod(shape, dtype=int))), shape or (1,)), axis=1)
        names = name_axes(len(shape), axes)
        table = pd.DataFrame(index[:, : len(names)], columns=pd.Index(names))
        for name in ("second", "gap", "layers_to_halve", "smallest_real", "irreversibility", "dobrushin", "residual"):
            table[name] = np.asarray(getattr(self, name)).reshape(-1)
        return table
