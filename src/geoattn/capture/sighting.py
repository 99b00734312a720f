"""What is noted of one attention call while the model runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from geoattn.capture.context import Context, describe_only_tokens

__all__ = ["Glimpse", "Sighting"]


class Sighting(NamedTuple):
    """One attention call: its tensors as they came, and what the modules around it say.

    Either ``weights`` (..., n, m), or ``query`` (..., n, d) and ``key`` (..., m, d). ``diagonal`` k hides keys
    j > i + k from query i. ``grouped``: query heads share keys in groups. ``merge`` is (heads, whether they are
    outer) of batch and heads in one axis, if it was seen how they got there. ``peaks`` (..., m) are the highest
    scores of each key. ``probe`` is (value (m, d), output (n, d)) of the first head of the first sample.
    ``cast`` is the dtype that autocast gives to queries, keys and masks.
    """

    context: Context
    weights: Any = None
    query: Any = None
    key: Any = None
    value: Any = None
    mask: Any = None
    diagonal: Any = None
    scale: Any = None
    grouped: bool = False
    merge: Any = None
    peaks: Any = None
    cast: Any = None
    dropout: bool = False
    probe: Any = None


class Glimpse(NamedTuple):
    """Fused self-attention in modules that were given tokens only, noted in haste: `look` makes the sighting later.

    A model that trains is large, and leaves nothing of Python in the cache between two layers: each line that runs
    there takes several times as long as in the loop that reads all calls of a step.
    """

    name: str
    heads: int | None
    batch_first: bool
    tokens: Any  # their shape
    query: Any
    key: Any
    versions: tuple[int, int]
    scale: float
    early: Any  # what `Capture` was asked to make of it at once

    def is_as_it_was(self) -> bool:
        """Whether nothing has changed queries and keys in place."""
        return self.versions == (self.query._version, self.key._version)

    def look(self) -> Sighting:
        """The sighting."""
        context = describe_only_tokens(self.name, self.heads, self.batch_first, self.tokens, self.query.shape[-2])
        return Sighting(context, query=self.query, key=self.key, scale=self.scale)
