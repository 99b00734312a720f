"""LayerNorm and RMSNorm of tokens, with their exact derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.inputs import read_tensor

__all__ = ["Norm", "NormTangent"]


@dataclass(frozen=True, eq=False)
class Norm:
    r"""y = gain * z + shift with :math:`z = c / \sqrt{\mathrm{mean}(c^2) + \epsilon}`.

    c = x - mean(x) for ``kind="layer"``, c = x for ``kind="rms"``; means over the coordinates of one token.

    Examples
    --------
    >>> import torch
    >>> from geoattn.smoothness import Norm
    >>> Norm("rms", eps=0.0)(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    tensor([[0.8485, 1.1314]], dtype=torch.float64)
    """

    kind: Literal["layer", "rms"]
    gain: Any = None  # (d,) or None for ones
    shift: Any = None  # (d,) or None for zeros
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.kind not in ("layer", "rms"):
            raise GeoattnError(f"norm must be 'layer' or 'rms'; got {self.kind!r}.")
        object.__setattr__(self, "eps", read_number("eps of the norm", self.eps, least=0))
        for name in ("gain", "shift"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_tensor(getattr(self, name), f"{name} of the norm"))

    def check(self, width: int) -> None:
        """Gain and shift fit tokens of this width, or an error."""
        for name in ("gain", "shift"):
            vector = getattr(self, name)
            if vector is not None and tuple(vector.shape) != (width,):
                raise GeoattnError(f"{name} of the norm must have shape ({width},); got {tuple(vector.shape)}.")

    def __call__(self, x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
        """The normalised tokens; differentiable."""
        c = x - x.mean(-1, keepdim=True) if self.kind == "layer" else x
        y = c * (c.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        y = y if self.gain is None else y * self.gain.to(x)
        return y if self.shift is None else y + self.shift.to(x)


class NormTangent:
    r"""The derivative of a norm at tokens x: :math:`dz = r (dc - z\,\mathrm{mean}(z\,dc))`, r the reciprocal root.

    Before gain and shift it is a symmetric matrix per token, so the adjoint needs no second formula. O(n d).
    """

    def __init__(self, norm: Norm, x: Float[Tensor, "b n d"], valid: Bool[Tensor, "b n"] | None = None) -> None:
        self.norm = norm
        c = x - x.mean(-1, keepdim=True) if norm.kind == "layer" else x
        square = c.square().mean(-1, keepdim=True) + norm.eps
        if valid is not None:
            square = square.masked_fill(~valid[..., None], 1.0)  # padding is zero; its norm is never used
        bad = (square == 0) | ~torch.isfinite(square)
        if bool(bad.any()):
            sample, at = (int(k) for k in bad.nonzero()[0][:2])
            raise GeoattnError(
                f"the norm has no derivative in float64 at token {at} of sample {sample}: the mean square is"
                f" {float(square[sample, at]):g}. Set eps above 0, or scale the tokens."
            )
        self.root = square.rsqrt()
        self.unit = c * self.root

    def _core(self, t: Float[Tensor, "b s n d"]) -> Float[Tensor, "b s n d"]:
        z, r = self.unit[:, None], self.root[:, None]
        if self.norm.kind == "layer":
            t = t - t.mean(-1, keepdim=True)
        return r * (t - z * (z * t).mean(-1, keepdim=True))  # "layer": z and t have mean zero, so this has, too

    def size(self) -> float:
        """A bound of its own norm that does not know of cancellation: the largest root times the largest gain."""
        gain = 1.0 if self.norm.gain is None else float(self.norm.gain.abs().max())
        return float(self.root.max()) * gain

    def apply(self, t: Float[Tensor, "b s n d"]) -> Float[Tensor, "b s n d"]:
        """Where a move t of the tokens moves the output."""
        out = self._core(t)
        return out if self.norm.gain is None else out * self.norm.gain.to(out)

    def adjoint(self, g: Float[Tensor, "b s n d"]) -> Float[Tensor, "b s n d"]:
        """The transposed derivative."""
        return self._core(g if self.norm.gain is None else g * self.norm.gain.to(g))
