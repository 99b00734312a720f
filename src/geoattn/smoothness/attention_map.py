"""One attention map from token clouds to token clouds: its weights, its options, its value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.inputs import read_matrices, read_tensor
from geoattn.smoothness.norms import Norm

__all__ = ["AttentionMap"]

NormPlace = Literal["before", "after"]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap(Displayed):
    r"""Attention as a map of tokens x to tokens, heads summed.

    .. math:: f(x, y)_i = \sum_h W_h V_h \sum_j P^h_{ij} y_j, \qquad
        P^h_{i\cdot} = \mathrm{softmax}_j \langle A_h x_i + a_h, y_j \rangle

    In self-attention y = x. The scale :math:`1/\sqrt k` of a model is inside A. ``causal`` keeps j <= i. Biases of
    keys and values do not change the derivative and are not here; that of the queries, a, does.

    ``norm`` normalises the tokens before the map, f(N x), or after it, N f(x). ``residual`` adds the input: x + f(N x),
    as in pre-norm blocks, or N(x + f(x)), as in post-norm blocks. A norm before the map acts on the tokens alone, not
    on the context.

    `AttentionMap.of` makes one. The fields hold the factors in that order, in float64: ``query`` (h, r, d),
    ``key`` (h, r, c) or None for y itself, ``value`` (h, p, c) or None, ``output`` (h, e, p) or None.

    Examples
    --------
    One causal head given by queries and keys; the first token sees itself alone:

    >>> import numpy as np, torch
    >>> from geoattn.smoothness import AttentionMap
    >>> f = AttentionMap.of((np.eye(2), -np.eye(2)), causal=True)
    >>> f(torch.eye(2, dtype=torch.float64))
    tensor([[1.0000, 0.0000],
            [0.7311, 0.2689]], dtype=torch.float64)
    >>> f.heads, f.width, f.out_width
    (1, 2, 2)
    """

    query: Float[Tensor, "h r d"]
    key: Float[Tensor, "h r c"] | None
    value: Float[Tensor, "h p c"] | None
    output: Float[Tensor, "h e p2"] | None
    bias: Float[Tensor, "h r"] | None = None
    causal: bool = False
    residual: bool = False
    norm: Norm | None = None
    norm_place: NormPlace = "before"

    @staticmethod
    def of(
        A: Any,
        V: Any = None,
        W: Any = None,
        *,
        bias: Any = None,
        causal: bool = False,
        residual: bool = False,
        norm: Literal["layer", "rms"] | Norm | None = None,
        norm_place: NormPlace = "before",
    ) -> AttentionMap:
        """The map of matrices that act on column vectors.

        Parameters
        ----------
        A
            (c, d), or (h, c, d) for h heads: logits <A x_i, y_j>. Or a pair (Q, K) of (r, d) and (r, c) with
            A = K^T Q, which costs less when r is small.
        V, W
            (p, c) and (e, p), or with a head axis in front; None is the identity.
        bias
            (c,) or (h, c): the vector a of the queries; with a pair (Q, K) it is (r,) or (h, r), logits
            <Q x_i + a, K y_j>.
        norm
            ``"layer"``, ``"rms"`` (gain 1, shift 0, eps 1e-5), or a `Norm`.

        Examples
        --------
        >>> import torch
        >>> f = AttentionMap.of(-torch.eye(2, dtype=torch.float64))
        >>> f(torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)).round(decimals=4)
        tensor([[-0.7616, 0.0000],
                [ 0.7616, 0.0000]], dtype=torch.float64)
        """
        if isinstance(A, tuple):
            if len(A) != 2:
                raise GeoattnError(f"A must be a matrix, an array of them, or a pair (Q, K); got {len(A)} items.")
            query, key = read_matrices(A[0], "Q of A = (Q, K)"), read_matrices(A[1], "K of A = (Q, K)")
            if query.shape[1] != key.shape[1]:
                raise GeoattnError(
                    f"Q and K must have the same number of rows, A = K^T Q; got {tuple(query.shape)} and"
                    f" {tuple(key.shape)}."
                )
            width = key.shape[-1]
        else:
            query, key = read_matrices(A, "A"), None
            width = query.shape[1]
        value = None if V is None else read_matrices(V, "V", columns=width)
        output = None if W is None else read_matrices(W, "W", columns=width if value is None else value.shape[1])
        heads = {
            name: w.shape[0] for name, w in (("A", query), ("K", key), ("V", value), ("W", output)) if w is not None
        }
        most = max(heads.values())
        if any(h != most for h in heads.values()):
            raise GeoattnError(f"A, V and W must have the same number of heads; got {heads}.")
        if output is None and value is not None and value.shape[1] >= width:
            value, output = None, value  # the same product; the mean of tokens first is not dearer
        vector = None
        if bias is not None:
            vector = read_tensor(bias, "bias")
            vector = vector if vector.ndim == 2 else vector[None]
            if tuple(vector.shape) != tuple(query.shape[:2]) or not bool(torch.isfinite(vector).all()):
                raise GeoattnError(
                    f"bias must be finite, of shape {tuple(query.shape[:2])} (or ({query.shape[1]},) for one head); got"
                    f" {tuple(vector.shape)}."
                )
        if norm_place not in ("before", "after"):
            raise GeoattnError(f"norm_place must be 'before' or 'after'; got {norm_place!r}.")
        wanted = Norm(norm) if isinstance(norm, str) else norm
        made = AttentionMap(query, key, value, output, vector, bool(causal), bool(residual), wanted, norm_place)
        if wanted is not None:
            wanted.check(made.width if norm_place == "before" else made.out_width)
        if made.residual and made.out_width != made.width:
            raise GeoattnError(
                f"residual needs an output as wide as the tokens ({made.width}); got {made.out_width}. Pass W."
            )
        return made

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.query.shape[0]

    @property
    def width(self) -> int:
        """Coordinates of a token."""
        return self.query.shape[2]

    @property
    def context_width(self) -> int:
        """Coordinates of a token of the context."""
        return self.query.shape[1] if self.key is None else self.key.shape[2]

    @property
    def out_width(self) -> int:
        """Coordinates of an output."""
        if self.output is not None:
            return self.output.shape[1]
        return self.context_width if self.value is None else self.value.shape[1]

    def to(self, like: Tensor) -> AttentionMap:
        """The same map in the dtype and on the device of a tensor."""
        names = ("query", "key", "value", "output", "bias")
        moved = {name: None if (w := getattr(self, name)) is None else w.to(like) for name in names}
        return replace(self, **moved)

    def __call__(
        self,
        tokens: Float[Tensor, "*b n d"],
        context: Float[Tensor, "*b m c"] | None = None,
        mask: Bool[Tensor, "*b n"] | None = None,
        context_mask: Bool[Tensor, "*b m"] | None = None,
    ) -> Float[Tensor, "*b n e"]:
        """The tokens that come out, by plain differentiable operations: O(h n m) memory. Padded rows are zero."""
        f = self.to(tokens)
        x = f.norm(tokens) if f.norm is not None and f.norm_place == "before" else tokens
        y = x if context is None else context
        keys = mask if context is None else context_mask
        q = torch.einsum("...nd,hrd->...hnr", x, f.query)
        q = q if f.bias is None else q + f.bias[:, None, :]
        k = y[..., None, :, :] if f.key is None else torch.einsum("...mc,hrc->...hmr", y, f.key)
        v = y[..., None, :, :] if f.value is None else torch.einsum("...mc,hpc->...hmp", y, f.value)
        logits = q @ k.transpose(-1, -2)
        hidden = torch.zeros(logits.shape[-2:], dtype=torch.bool, device=logits.device)
        if f.causal:
            hidden = hidden.logical_not().triu(1)
        if keys is not None:
            hidden = hidden | ~keys[..., None, None, :]
            if mask is not None:  # a padded query may have no key at all; its row is dropped below
                hidden = hidden & mask[..., None, :, None]
        o = logits.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        out = o.sum(-3) if f.output is None else torch.einsum("...hnp,hep->...ne", o, f.output)
        out = out + tokens if f.residual else out
        out = f.norm(out) if f.norm is not None and f.norm_place == "after" else out
        return out if mask is None else out.masked_fill(~mask[..., None], 0.0)
