"""The tensors that are stored of one attention call: queries, keys and mask, or the weights themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention.masks import Index, Mask, attention_weights
from geoattn.attention.padding import keys_of_mask, keys_of_weights, last_key, real_tokens

__all__ = ["StoredTensors", "storage_bytes", "versions"]


_NONE = Mask()
_OTHERS = ("mask", "key_mask", "query_mask", "value", "tokens", "source")


@dataclass(frozen=True, eq=False)
class StoredTensors:
    """The tensors of one call, in (batch, heads, ...) layout.

    Either ``weights`` (batch, heads, n, m), or ``query`` (batch, heads, n, d) and ``key`` (batch, groups, m,
    d) with ``scale``, both rounded to ``cast`` (autocast) first. ``mask`` is the call's own, known when
    ``fused``. ``key_mask`` (batch, m) and ``query_mask`` (batch, n) are 2-D masks of the model, or what the
    self-attention before a cross-attention knows of the same queries, non-zero for real tokens. ``peaks`` (batch,
    heads, m) are the highest scores of each key. ``value``, ``tokens`` and ``source`` are kept when asked for.
    ``inputs``: those and queries and keys were asked for. ``random``: dropout by hand changed the weights.
    ``appended``: keys beyond the n-th follow the queries instead of preceding them. ``length`` and ``whole`` as in
    `Context`. ``versions`` and ``others`` tell later whether something changed the tensors in place; ``changed``
    names what was changed before it could be read.
    """

    query: Any = None
    key: Any = None
    scale: float = 1.0
    cast: Any = None
    weights: Any = None
    fused: bool = False
    mask: Mask = _NONE
    key_mask: Any = None
    query_mask: Any = None
    peaks: Any = None
    value: Any = None
    tokens: Any = None
    source: Any = None
    inputs: bool = False
    random: bool = False
    appended: bool = False
    length: int | None = None
    whole: bool = False
    versions: tuple[int | None, ...] = ()
    others: dict[str, int | None] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, changed: frozenset[str], **parts: Any) -> "StoredTensors":
        """The parts, with their versions."""
        if changed & {"query", "key", "weights"}:
            own = ()
        else:
            own = versions(*_own(parts.get("weights"), parts.get("query"), parts.get("key")))
        others = {part: _version(parts.get(part)) for part in _OTHERS if parts.get(part) is not None}
        return cls(**parts, changed=changed, versions=own, others=others)

    def build(self, sample: Index, head: Index, rows: Index, name: str) -> Float[Tensor, "b h n m"]:
        """The map of the chosen samples, heads and rows."""
        self.require(name, "query", "key", "weights", "mask")
        if self.weights is not None:
            return self.weights[sample][:, head][:, :, rows]
        query, key, mask = self.operands()
        return attention_weights(query, key, mask, self.scale, sample, head, rows)

    def operands(self) -> tuple[Tensor, Tensor, Mask]:
        """Queries, keys and mask as the kernel took them: rounded by autocast, where it was on."""
        query, key, mask = self.query, self.key, self.mask
        if self.cast is not None:
            query, key = query.to(self.cast), key.to(self.cast)
            if mask.entries is not None and mask.entries.is_floating_point():
                mask = mask._replace(entries=mask.entries.to(self.cast))
        return query, key, mask

    def run_kernel(self, value: Float[Tensor, "m d"]) -> Float[Tensor, "n d"]:
        """What scaled_dot_product_attention makes of the first head of the first sample, without dropout."""
        query, key, mask = self.operands()
        query, key = query[:1, :1], key[:1, :1].to(query.dtype)
        n, m = query.shape[2], key.shape[2]
        entries = None if mask.entries is None else mask.entries[:1, :1].expand(1, 1, n, m)
        if mask.diagonal is not None:
            seen = torch.ones(n, m, dtype=torch.bool, device=query.device).tril(mask.diagonal)
            if entries is None or entries.dtype == torch.bool:
                entries = seen if entries is None else entries & seen
            else:
                entries = entries.masked_fill(~seen, -torch.inf)
        value = value[None, None].to(query.dtype)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=entries, scale=self.scale)[0, 0]

    def real_keys(self, batch: int, n: int, m: int, name: str) -> Bool[Tensor, "b m"]:
        """Which keys are real tokens: from the model's 2-D mask, else the call's mask, else the weights."""
        if self.key_mask is not None:
            self.require(name, "key_mask")
            return real_tokens(self.key_mask)
        if self.fused:
            self.require(name, "mask")
            return keys_of_mask(self.mask, batch, n, m).to(self.any_part().device)
        self.require(name, "weights")
        if self.whole:
            return torch.ones(batch, m, dtype=torch.bool, device=self.weights.device)
        return keys_of_weights(self.weights, self.peaks)

    def offset(self, n: int, m: int) -> int | None:
        """Position of the first query among the keys of self-attention; None when it is not known.

        m - n behind a cache of past keys that grows. In one of fixed length the last query sees no key after
        itself.
        """
        if n == m or self.appended:
            return 0
        if n < m and self.length not in (n, None):  # some of the tokens: a class token, a part of a long sequence
            return None
        if self.mask.diagonal is not None:
            return self.mask.diagonal
        if self.key_mask is not None:
            return m - n
        return max(0, last_key(self.mask, None if self.fused else self.weights, n, m) + 1 - n)

    def require(self, name: str, *parts: str) -> None:
        """Raise if one of the parts is not any more what the model used."""
        changed = [part for part in parts if part in self.changed]
        changed += [p for p in parts if p in self.others and self.others[p] != _version(getattr(self, p))]
        own = not changed and {"query", "key", "weights"} & {*parts}
        if changed or (own and self.versions != versions(*_own(self.weights, self.query, self.key))):
            what = f"the {changed[0].replace('_', ' ')}" if changed and changed[0] in _OTHERS else "the tensors"
            raise GeoattnError(
                f"{what} of the attention call in {name!r} changed in place after it; take what you need during"
                " the forward pass with capture(model, reduce=...)."
            )

    def with_mask(self, change: Callable[[Mask], Mask]) -> "StoredTensors":
        """The same with the mask written in another way, unless something changed it in place."""
        if self.mask.entries is None or self.others["mask"] != _version(self.mask):
            return self
        mask = change(self.mask)
        return replace(self, mask=mask, others=self.others | {"mask": _version(mask)})

    def tensors(self) -> list[Tensor]:
        """All tensors that this record keeps alive."""
        parts = [getattr(self, part.name) for part in fields(self)]
        parts.append(self.mask.entries)
        return [part for part in parts if isinstance(part, Tensor)]

    def any_part(self) -> Tensor:
        """One of the tensors, for its dtype and device."""
        return self.query if self.weights is None else self.weights


def _own(weights: Any, query: Any, key: Any) -> tuple[Tensor, ...]:
    return (query, key) if weights is None else (weights,)


def _version(value: Any) -> int | None:
    value = value.entries if isinstance(value, Mask) else value
    return versions(value)[0] if isinstance(value, Tensor) else None


def versions(*tensors: Tensor) -> tuple[int | None, ...]:
    """Counters that torch raises with each change in place; None for inference tensors, which have none."""
    return tuple([None if tensor.is_inference() else tensor._version for tensor in tensors])


def storage_bytes(tensors: list[Tensor]) -> int:
    """Memory behind the tensors, each storage counted once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
