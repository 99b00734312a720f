"""What is kept of one attention call: queries, keys and mask, or the weights themselves."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from geoattn.capture.maps import Index, Mask, attention_weights
from geoattn.capture.padding import keys_of_mask, keys_of_weights, last_key
from geoattn.errors import GeoattnError

__all__ = ["Kept", "storage_bytes", "versions"]


_NONE = Mask()


@dataclass(frozen=True, eq=False)
class Kept:
    """The tensors of one call, in (batch, heads, ...) layout.

    Either ``weights`` (batch, heads, n, m), or ``query`` (batch, heads, n, d) and ``key`` (batch, groups, m,
    d) with ``scale``, both rounded to ``cast`` (autocast) first. ``mask`` is the call's own, ``partner`` that
    of the last self-attention of the same queries. ``key_mask`` (batch, m) and ``query_mask`` (batch, n) are
    2-D masks of the model, non-zero for real tokens. ``value``, ``tokens`` and ``source`` are kept when asked
    for. ``appended``: keys beyond the n-th follow the queries instead of preceding them. ``versions`` tell
    later whether something changed the tensors in place.
    """

    query: Any = None
    key: Any = None
    scale: float = 1.0
    cast: Any = None
    weights: Any = None
    mask: Mask = _NONE
    partner: Mask | None = None
    key_mask: Any = None
    query_mask: Any = None
    value: Any = None
    tokens: Any = None
    source: Any = None
    appended: bool = False
    versions: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, **parts: Any) -> "Kept":
        """The parts, with their versions."""
        weights = parts.get("weights")
        return cls(**parts, versions=versions(parts["query"], parts["key"]) if weights is None else versions(weights))

    def build(self, sample: Index, head: Index, rows: Index, name: str) -> Float[Tensor, "b h n m"]:
        """The map of the chosen samples, heads and rows."""
        if self.versions != (versions(self.query, self.key) if self.weights is None else versions(self.weights)):
            raise GeoattnError(
                f"the tensors of the attention call in {name!r} were changed in place after it; take what you"
                " need during the forward pass with capture(model, reduce=...)."
            )
        if self.weights is not None:
            return self.weights[sample][:, head][:, :, rows]
        query, key = self.query, self.key
        if self.cast is not None:
            query, key = query.to(self.cast), key.to(self.cast)
        return attention_weights(query, key, self.mask, self.scale, sample, head, rows)

    def real_keys(self, batch: int, n: int, m: int) -> Bool[Tensor, "b m"]:
        """Which keys are real tokens: from the model's 2-D mask, else the call's mask, else the weights."""
        if self.key_mask is not None:
            return self.key_mask != 0
        if self.weights is not None and self.mask == Mask():
            return keys_of_weights(self.weights)
        return keys_of_mask(self.mask, batch, n, m).to(self.any_part().device)

    def offset(self, n: int, m: int) -> int:
        """Position of the first query among the keys of self-attention.

        m - n behind a cache of past keys that grows. In one of fixed length the last query sees no key after
        itself.
        """
        if n == m or self.appended:
            return 0
        if self.mask.diagonal is not None:
            return self.mask.diagonal
        if self.key_mask is not None:
            return m - n
        return max(0, last_key(self.mask, self.weights, n, m) + 1 - n)

    def tensors(self) -> list[Tensor]:
        """All tensors that this record keeps alive."""
        parts = [getattr(self, part.name) for part in fields(self)]
        parts += [mask.entries for mask in (self.mask, self.partner) if mask is not None]
        return [part for part in parts if isinstance(part, Tensor)]

    def any_part(self) -> Tensor:
        """One of the tensors, for its dtype and device."""
        return self.query if self.weights is None else self.weights


def versions(*tensors: Tensor) -> tuple[int | None, ...]:
    """Counters that torch raises with each change in place; None for inference tensors, which have none."""
    return tuple([None if tensor.is_inference() else tensor._version for tensor in tensors])


def storage_bytes(tensors: list[Tensor]) -> int:
    """Memory behind the tensors, each storage counted once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
