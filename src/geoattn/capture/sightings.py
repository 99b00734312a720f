"""Attention calls as the function mode meets them, before they become calls of a record.

Traced by torch.compile, which makes a new graph when something it read has changed, such as the length of a
list that grows from step to step. So sightings wait in a chain of letters, to which a letter is added without
looking at the others, and are delivered outside of compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, no_type_check

import torch
from torch import nn
from torch.nn.attention.bias import CausalBias, CausalVariant

from geoattn.capture.compiling import runs_compiled_kernel
from geoattn.capture.context import Context, describe
from geoattn.capture.frames import Frame, in_backward
from geoattn.capture.merges import note_merge, split_merge
from geoattn.capture.products import PRODUCTS, factors, weighted_sum
from geoattn.capture.refusals import kernel_complaint, refuse_reentrant, refuse_tensor
from geoattn.capture.sighting import Glimpse, Sighting
from geoattn.capture.trails import Trail, before_dropout, extend, follow_scores, is_attention_like
from geoattn.errors import GeoattnError

__all__ = ["Sightings"]


@no_type_check
class Letter:
    """One sighting on its way to the record, and the letter before it; an empty one begins the chain."""

    def __init__(self, content: Any, before: Any) -> None:
        self.content = content
        self.before = before


@no_type_check
class Sightings:
    """The state of an open capture: running modules, trails of softmax results, and the inbox."""

    def __init__(self, with_inputs: bool, early: Any, receive: Callable[[Any], None]) -> None:
        self.frames: list[Frame] = []
        self.last = Letter(None, None)
        self.trails: list[Trail] = []
        self.scores: list[Any] = []
        self.merges: list[Any] = []
        self.made: list[Any] = []  # products of batches since the first softmax on a trail: no values
        self.probed: set[str] = set()
        self.joined: set[str] = set()  # modules with batch and heads in one axis
        self.with_inputs = with_inputs
        self._early = early
        self._receive = receive

    def deliver(self) -> None:
        """Hand over the letters, oldest first. Outside of compiled code only."""
        letter, contents = self.last, []
        while letter is not None and letter.content is not None:
            contents.append(letter.content)
            letter.content = None  # a compiled graph that is running may still hold on to the letter
            letter = letter.before
        if contents:
            self.last = Letter(None, None)
            for content in reversed(contents):
                self._receive(content)

    def is_following(self) -> bool:
        """True while a result is on its way from scores to weights to values."""
        return bool(self.trails or self.scores)

    def leave(self) -> None:
        """A module has ended: forget the trails that began in it or below, and deliver."""
        if self.trails:
            depth = len(self.frames) + 1
            self.trails[:] = [trail for trail in self.trails if trail.depth <= depth and self.frames]
        if self.merges:
            self.merges[:] = [merge for merge in self.merges if merge.depth <= len(self.frames) + 1 and self.frames]
        if self.made and not self.trails:
            self.made.clear()
        if self.scores and not self.frames:
            self.scores.clear()
        if not torch.compiler.is_compiling() and self.last.content is not None:
            self.deliver()

    def fused(self, args: Any, kwargs: Any, out: Any) -> None:
        """scaled_dot_product_attention ran."""
        if self._passes():
            return
        frame, given = self.frames[-1], len(args)
        query = args[0] if given > 0 else kwargs["query"]
        refuse_tensor(query, frame.name)
        if frame.by_name and frame.only_tokens and _is_plain(args, kwargs):
            query, key, _ = args
            scale, versions, tokens = kwargs.get("scale"), (query._version, key._version), frame.args[0].shape
            scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
            early = None if self._early is None else self._early(query, key, scale)
            self._add(Glimpse(frame.name, frame.heads, frame.batch_first, tokens, query, key, versions, scale, early))
            return
        key = args[1] if given > 1 else kwargs["key"]
        value = args[2] if given > 2 else kwargs["value"]
        mask = args[3] if given > 3 else kwargs.get("attn_mask")
        dropout = args[4] if given > 4 else kwargs.get("dropout_p", 0.0)
        diagonal = 0 if (args[5] if given > 5 else kwargs.get("is_causal", False)) else None
        n, m = query.shape[-2], key.shape[-2]
        if isinstance(mask, CausalBias):  # its entries are never filled in
            diagonal = 0 if mask.variant == CausalVariant.UPPER_LEFT else m - n
            mask = None
        context = describe(self.frames, n, m, self.with_inputs)
        if query.ndim != 4 and not torch.compiler.is_compiling():
            self.joined.add(context.name)
        sighting = Sighting(
            context,
            query=_own(query),
            key=_own(key),
            value=_own(value) if self.with_inputs else None,
            mask=mask,
            diagonal=diagonal,
            scale=kwargs.get("scale"),
            grouped=bool(kwargs.get("enable_gqa", False)),
            merge=self._merge(query.ndim, (query, key, value), context),
            cast=_autocast_dtype(query),
            dropout=dropout > 0,
            probe=self._probe(context.name, value, out),
        )
        self._add(sighting)

    def kernel(self, func: Any) -> None:
        """A kernel ran that is no function of torch: refused, once outside of compiled code, if it is attention."""
        frame = self.frames[-1]
        complaint = kernel_complaint(func, frame.name) if frame.chosen else None
        if complaint is not None and (torch.compiler.is_compiling() or not runs_compiled_kernel()):
            self.last = Letter(GeoattnError(complaint), self.last)
            if not torch.compiler.is_compiling():
                self.deliver()

    def softmax(self, args: Any, kwargs: Any, out: Any) -> None:
        """A softmax ran: attention, perhaps."""
        if not is_attention_like(args, kwargs, out):
            return
        argument = args[0] if args else kwargs["input"]
        scores = None
        for product, current in self.scores:
            if current is argument:
                scores = product
        self.scores.clear()
        if not self.trails:
            self.made.clear()
        self.trails.append(Trail(out, argument, out, out, -1, False, False, len(self.frames), scores))

    def merged(self, args: Any, kwargs: Any, out: Any) -> None:
        """Axes were put into one, perhaps batch and heads."""
        note_merge(self.merges, args, kwargs, out, len(self.frames))

    def follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run any other function, with an eye on what it does to the trails."""
        before_dropout(self.trails, func, args, kwargs)
        out = func(*args, **kwargs)
        if self.with_inputs:
            follow_scores(self.scores, func, args, kwargs, out)
        if func in PRODUCTS:
            for trail in reversed(self.trails):
                product = weighted_sum(func, args, kwargs, out, trail.current, trail.weights, trail.axis)
                if product is not None:
                    self._found(trail, product, factors(func, args, kwargs))
                    return out
            if self.trails:
                self._note_product(func, args, kwargs, out)
        if self.trails:
            extend(self.trails, func, args, kwargs, out)
        return out

    def _note_product(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        first, second = factors(func, args, kwargs)
        if isinstance(first, nn.Parameter) or isinstance(second, nn.Parameter):
            return
        if first is not None and second is not None and first.ndim == second.ndim >= 3:
            self.made.append(out)

    def _found(self, trail: Trail, product: Any, given: Any) -> None:
        self.trails[:] = [other for other in self.trails if other.origin is not trail.origin]
        for made in self.made:
            if made is given[0] or made is given[1]:
                return  # linear attention: a softmax of queries, times a product of keys and values
        if self._passes():
            return
        query = key = None
        if trail.scores is not None:
            query, key = trail.scores.left, trail.scores.right.transpose(-1, -2)
        refuse_tensor(product.left, self.frames[-1].name)
        n, m = product.left.shape[-2:]
        context = describe(self.frames, n, m, self.with_inputs)
        peaks = None
        if context.key_mask is None and not context.whole and not trail.masked and trail.argument is not trail.origin:
            peaks = trail.argument.detach().amax(dim=-2)
        sighting = Sighting(
            context,
            weights=_own(product.left),
            query=query,
            key=key,
            value=_own(product.right) if self.with_inputs else None,
            merge=self._merge(product.left.ndim, given, context),
            peaks=peaks,
            dropout=trail.dropped,
            probe=self._probe(context.name, product.right, product.result),
        )
        self._add(sighting)

    def _passes(self) -> bool:
        """True when this call is not to be recorded: another layer, or a second run by checkpointing."""
        frame = self.frames[-1]
        if not torch.compiler.is_compiling():
            if in_backward():
                return True
            if not torch.is_grad_enabled():
                refuse_reentrant(frame.name)
        if not frame.chosen:
            self.last = Letter(frame.name, self.last)
            return True
        return False

    def _merge(self, ndim: int, tensors: Any, context: Context) -> Any:
        return split_merge(self.merges, tensors, context.heads, context.batch) if ndim == 3 and self.merges else None

    def _probe(self, name: str, value: Any, out: Any) -> Any:
        """Values and output of the first head of the first sample, at the first visit of a module."""
        if name in self.probed:
            return None
        if not torch.compiler.is_compiling():
            self.probed.add(name)
        first, place = (0,) * (value.ndim - 2), (0,) * (out.ndim - 2)
        return value.detach()[first].clone(), out.detach()[place].clone()

    def _add(self, sighting: Sighting | Glimpse) -> None:
        if torch.compiler.is_compiling():
            self.last = Letter(sighting, self.last)
            return
        if self.last.content is not None:
            self.deliver()
        self._receive(sighting)


@no_type_check
def _is_plain(args: Any, kwargs: Any) -> bool:
    """Whether a call is described by queries and keys, of one shape and four axes: no mask, no autocast."""
    if len(args) != 3 or kwargs.get("attn_mask") is not None or kwargs.get("is_causal") or kwargs.get("enable_gqa"):
        return False
    query, key, _ = args
    if query.ndim != 4 or query.shape != key.shape or torch._C._is_any_autocast_enabled():
        return False
    return not (query.is_inference() or key.is_inference())


@no_type_check
def _autocast_dtype(x: Any) -> Any:
    """The dtype that autocast gives to operands on the device of x, None where it is off."""
    if not torch.compiler.is_compiling() and not torch._C._is_any_autocast_enabled():  # one quick look
        return None
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


@no_type_check
def _own(x: Any) -> Any:
    """A copy of tensors of inference mode: those do not tell when something changes them in place."""
    return x.clone() if not torch.compiler.is_compiling() and x.is_inference() else x
