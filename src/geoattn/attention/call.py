"""One attention call, and the map that is built when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.display import Viewable
from geoattn._core.errors import GeoattnError
from geoattn.attention.axes import Selector, pick
from geoattn.attention.padding import real_tokens
from geoattn.attention.stored import StoredTensors, storage_bytes

__all__ = ["PROBED_ROWS", "Call", "Probe"]

PROBED_ROWS = 64  # that the self-check compares


@dataclass(frozen=True, eq=False)
class Probe:
    """Values and output of the first head of the first sample, for the self-check.

    ``used`` are its first rows with dropout, where the model made them and dropout was active. Behind a cache values
    are long, and ``error`` is kept instead: (map x values - output, largest value).
    """

    value: Float[Tensor, "m d"] | None
    output: Float[Tensor, "n d"] | None
    used: Float[Tensor, "r m"] | None
    dropout: bool
    error: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class Call(Viewable):
    """One attention call of a forward pass: b samples, h heads, n queries, m keys.

    ``name`` is the module it ran in. ``kind`` is "self", or "cross" when the keys come from another sequence, or
    "joint": self-attention over the tokens of several streams, one after the other (SD3, Flux).
    ``route`` is "sdpa" (queries and keys are kept and the map is built when asked for) or "softmax" (the
    model built the map itself and that is kept). ``shape`` is (b, h, n, m). ``index`` is its place in the
    record, ``visit`` the number of earlier runs of the same module: shared layers, steps of a generation. ``part``
    counts the calls of one run: images of unequal size, heads or samples in a loop. ``sink`` is the number of columns
    of the softmax that are no tokens and that the model cut off (gpt-oss): then rows sum to less than one.
    ``reduced`` is what ``reduce=`` made of it.

    In a model with windows (Swin) each window is a sample.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.rand(1, 5, 8, generator=torch.Generator().manual_seed(0))
    >>> with ga.capture(model) as record, torch.no_grad():
    ...     _ = model(x, x, x, need_weights=False)
    >>> record[0].kind, record[0].shape, record[0].attention(head=1).shape
    ('self', (1, 2, 5, 5), torch.Size([1, 1, 5, 5]))
    """

    name: str
    kind: Literal["self", "cross", "joint"]
    route: Literal["sdpa", "softmax"]
    shape: tuple[int, int, int, int]
    index: int = 0
    visit: int = 0
    part: int = 0
    sink: int = 0
    reduced: Any = None
    stored: StoredTensors | None = None
    probe: Probe | None = None

    def attention(
        self, sample: Selector = None, head: Selector = None, rows: Selector = None
    ) -> Float[Tensor, "b h n m"]:
        r"""Weights :math:`A_{ij}` of query i on key j, before dropout; 0 in rows and columns of padding.

        ``sample``, ``head`` and ``rows`` choose by number, slice or list; all four axes stay. Gradients flow
        to the queries and keys of the model. Rows of real tokens sum to one unless the model has a sink (see
        `Record.check`). 16-bit queries give float32 maps. Built anew each time at O(b h n m d) for the chosen
        b, h and n; on the softmax route the kept map is cut.

        Examples
        --------
        >>> import torch
        >>> from geoattn.attention import capture
        >>> model = torch.nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> with capture(model) as record:
        ...     _ = model(torch.randn(3, 5, 8))
        >>> record[0].attention().shape, record[0].attention(sample=0, head=1, rows=slice(2)).shape
        (torch.Size([3, 2, 5, 5]), torch.Size([1, 1, 2, 5]))
        """
        b, h, n, _ = self.shape
        s, r = pick(sample, b, "sample"), pick(rows, n, "rows")
        with torch._C.DisableTorchFunction():  # an open capture must not take this for attention of the model
            weights = self._read().build(s, pick(head, h, "head"), r, self.name)
            if bool(self.valid.all() & self.valid_keys.all()):
                return weights
            real = self.valid[s][:, r][:, None, :, None] & self.valid_keys[s][:, None, None, :]
            return weights.masked_fill(~real, 0.0)

    @cached_property
    def valid(self) -> Bool[Tensor, "b n"]:
        """True for the queries that are real tokens, False for padding.

        From the 2-D ``attention_mask`` that the model was given, else from the mask of the call (a token that
        no query may see is padding), else, on the softmax route, from the weights (a token that no query
        gives weight to is padding). The queries of cross-attention take it from the self-attention before it.
        An error when tokens are padding and it is not known which of them the queries are.
        """
        stored, (b, _, n, m) = self._read(), self.shape
        if self.offset is not None:
            return self.valid_keys[:, self.offset : self.offset + n]
        if self.in_blocks:
            return torch.ones(b, n, dtype=torch.bool, device=self.valid_keys.device)
        if self.kind != "cross" and (stored.fused or stored.key_mask is not None) and not bool(self.valid_keys.all()):
            raise GeoattnError(
                f"{self.name!r} reads {n} queries of {m} tokens, some of which are padding, and it is not known which"
                " queries those are; give it batches without padding."
            )
        if self.kind == "cross" and stored.query_mask is not None:
            stored.require(self.name, "query_mask")
            return real_tokens(stored.query_mask)
        return torch.ones(b, n, dtype=torch.bool, device=self.valid_keys.device)

    @cached_property
    def valid_keys(self) -> Bool[Tensor, "b m"]:
        """True for the keys that are real tokens; equal to ``valid`` in self-attention without a cache."""
        b, _, n, m = self.shape
        return self._read().real_keys(b, n, m, self.name)

    @property
    def in_blocks(self) -> bool:
        """True when the module cuts its tokens into overlapping blocks by itself: maps fit no sequence of its own.

        Then padding of the tokens says nothing about the rows of a map.
        """
        (n, m), length = self.shape[2:], self._read().length
        if self.kind == "cross" or length is None or n == m:
            return False
        return n not in (1, length) and m != length

    @cached_property
    def offset(self) -> int | None:
        """Position of the first query among the keys (after those of a cache).

        None in cross-attention, and when the queries are some of the tokens that the module was given and it is
        not known which, such as a class token or a part of a long sequence.
        """
        return None if self.kind == "cross" else self._read().offset(*self.shape[2:])

    @property
    def query(self) -> Float[Tensor, "b h n d"]:
        """Queries; on the softmax route with the scale, if the model put it there. Needs ``inputs=True``."""
        return self._input("query")

    @property
    def key(self) -> Float[Tensor, "b g m d"]:
        """Keys; g divides h when groups of query heads share them. Needs ``inputs=True``."""
        return self._input("key")

    @property
    def value(self) -> Float[Tensor, "b g m d"]:
        """Values. Needs ``inputs=True``."""
        return self._input("value")

    @property
    def tokens(self) -> Float[Tensor, "b n w"]:
        """Token inputs X of the attention module. Needs ``inputs=True``."""
        return self._input("tokens")

    @property
    def source(self) -> Float[Tensor, "b m w"]:
        """Tokens that the keys are made from in cross-attention. Needs ``inputs=True``."""
        return self._input("source")

    @property
    def nbytes(self) -> int:
        """Memory behind all that is kept of this call; layers may share some of it, such as masks."""
        return 0 if self.stored is None else storage_bytes(self.stored.tensors())

    def facts(self) -> dict[str, Any]:
        """What the call shows of itself."""
        names = ("name", "kind", "route", "shape", "index", "visit")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        b, h, n, m = self.shape
        return f"Call({self.name!r}, {self.kind}, {self.route}, {b} x {h} heads x {n} x {m})"

    def _read(self) -> StoredTensors:
        if self.stored is None:
            raise GeoattnError(
                f"the call in {self.name!r} was reduced: only .reduced is left; capture it without reduce=."
            )
        return self.stored

    def _input(self, part: str) -> Any:
        stored = self._read()
        tensor = getattr(stored, part)
        if tensor is None or not stored.inputs:
            if not stored.inputs:
                raise GeoattnError(f"{part} of {self.name!r} was not kept; use capture(model, inputs=True).")
            raise GeoattnError(f"{part} of {self.name!r} was not found: the module does not take or make it as such.")
        stored.require(self.name, part)
        return tensor
