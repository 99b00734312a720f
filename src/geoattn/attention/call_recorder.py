"""Attention calls as the function mode meets them, before they become calls of a record.

torch.compile traces this code, and makes a new graph when something that it read has changed, such as the length of a
list that grows from step to step. So calls wait in a linked list, to which one is added without looking at the others,
and are delivered to the records outside of compiled code.
"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import torch
from torch.nn.attention.bias import CausalBias, CausalVariant

from geoattn._core.errors import GeoattnError
from geoattn.attention.account import SoftmaxUse, is_of_channels, judge, leftover_use
from geoattn.attention.axes import note_merge, split_merge
from geoattn.attention.call import PROBED_ROWS
from geoattn.attention.growing_cache import GrowingCaches
from geoattn.attention.hidden_softmaxes import HiddenSoftmaxes
from geoattn.attention.module_context import describe, token_counts
from geoattn.attention.module_stack import RunningModule, in_backward
from geoattn.attention.products import Product, queries_and_keys, weighted_sum
from geoattn.attention.raw_call import RawCall, autocast_dtype, first_head, keep_rows, reads_a_cache, steps_of
from geoattn.attention.refusals import kernel_complaint, refuse_reentrant, refuse_tensor
from geoattn.attention.softmax_tracker import SoftmaxTracker
from geoattn.attention.streams import Streams
from geoattn.attention.torch_compile import runs_compiled_kernel

__all__ = ["CallRecorder"]


@no_type_check
class Pending:
    """Something that waits to be delivered, and what was there before it; an empty one ends the list."""

    def __init__(self, content: Any, before: Any) -> None:
        self.content = content
        self.before = before


@no_type_check
class CallRecorder:
    """Describes the attention calls of one model and hands them to its listeners.

    ``running`` are the modules that are running, ``wanted`` the names of those whose attention is wanted (None: all),
    ``with_inputs`` whether values and tokens are kept. A listener has ``receive(item)`` for a `RawCall`, the name of a
    module in which attention ran that is not wanted, or an error.
    """

    def __init__(self) -> None:
        self.running: list[RunningModule] = []
        self.tracker = SoftmaxTracker()
        self.listeners: list[Any] = []
        self.wanted: Any = None
        self.with_inputs = False
        self.factorised = ""  # the module in which attention was seen to be approximated by factors
        self.merges: list[Any] = []
        self.streams = Streams()
        self.caches = GrowingCaches()
        self.hidden = HiddenSoftmaxes(self.running)
        self.had_gradients = True  # when the forward pass began; without them checkpointing cuts nothing
        self.surprise = ""  # the module around one that had no hooks, in which attention ran
        self._pending = Pending(None, None)
        self._last_run: Any = None
        self._part = 0

    def deliver(self) -> None:
        """Hand over what waits, oldest first. Outside of compiled code only."""
        pending, contents = self._pending, []
        while pending is not None and pending.content is not None:
            contents.append(pending.content)
            pending.content = None  # a compiled graph that is running may still hold on to it
            pending = pending.before
        if contents:
            self._pending = Pending(None, None)
            for content in reversed(contents):
                self._receive(content)

    def leave(self) -> None:
        """A module has ended."""
        depth = len(self.running)
        tracker = self.tracker
        if not torch.compiler.is_compiling() and not depth:
            self._last_run = None
        tracker.leave(depth)
        if self.streams.depth:
            self.streams.leave(depth)
        if self.factorised and not any([module.name == self.factorised for module in self.running]):
            self.factorised = ""
        if tracker.closed:
            for softmax in tracker.closed:
                self._tell(softmax)
            tracker.closed.clear()
        if self.merges:
            self.merges[:] = [merge for merge in self.merges if depth and merge.depth <= depth + 1]
        if not torch.compiler.is_compiling() and self._pending.content is not None:
            self.deliver()

    def end(self, module: Any) -> None:
        """A forward pass that began at this module has ended."""
        for use in self.hidden.found(module):
            self._receive(use)

    def heard(self) -> None:
        """Scores or a softmax were made in the module that is running. Outside of compiled code only."""
        name = self.running[-1].name
        if name in self.hidden.heard:
            return
        if not self.hidden.is_active:  # a part of it that was silent so far, and bears no name for now
            self.surprise = name
        self.hidden.heard.add(name)
        self.hidden.loud.update([module.name for module in self.running])

    def fused(self, args: Any, kwargs: Any, out: Any) -> None:
        """scaled_dot_product_attention ran."""
        if self._passes():
            return
        given = len(args)
        query = args[0] if given > 0 else kwargs["query"]
        refuse_tensor(query, self.running[-1].name)
        key = args[1] if given > 1 else kwargs["key"]
        value = args[2] if given > 2 else kwargs["value"]
        mask = args[3] if given > 3 else kwargs.get("attn_mask")
        dropout = args[4] if given > 4 else kwargs.get("dropout_p", 0.0)
        diagonal = 0 if (args[5] if given > 5 else kwargs.get("is_causal", False)) else None
        scale = kwargs.get("scale")
        n, m = query.shape[-2], key.shape[-2]
        if isinstance(mask, CausalBias):  # its entries are never filled in
            diagonal = 0 if mask.variant == CausalVariant.UPPER_LEFT else m - n
            mask = None
        if n == m and is_of_channels(query, n, m, value.shape[-1], token_counts(self.running[-1])):
            self._add(SoftmaxUse(self.running[-1].name, (*query.shape[:-1], m), -1, "channel attention"))
            return
        context = describe(self.running, n, m, self.with_inputs, self.streams.source_of_keys(query, key))
        call = RawCall(
            context,
            query=query,
            key=key,
            mask=mask,
            diagonal=diagonal,
            scale=1 / math.sqrt(query.shape[-1]) if scale is None else float(scale),
            grouped=bool(kwargs.get("enable_gqa", False)),
            merge=self._merge(query.ndim, (query, key, value), context),
            steps=steps_of(query, key, value),
            cast=autocast_dtype(query),
            dropout=dropout > 0,
            inputs=self.with_inputs,
        )
        if not torch.compiler.is_compiling() and reads_a_cache(call):
            call = self._cached(call, value, out)
        if call.rows is None and call.cached is None:
            kept = _own(value) if self.with_inputs else None
            probe = _probe(value, out, dropout > 0)
            call = call._replace(query=_own(query), key=_own(key), value=kept, probe=probe)
        self._add(call)

    def _cached(self, call: Any, value: Any, out: Any) -> Any:
        """The call with what has to be kept of a cache: nothing but a length, where the cache grows."""
        lines = None if call.inputs or call.dropout else self.caches.find(call.context.name, call.key, value)
        if lines is None:
            return keep_rows(call, first_head(value), first_head(out))
        probe = (None, first_head(out).clone(), None, False)
        return call._replace(key=None, probe=probe, cached=(*lines, call.key.shape[-2]))

    def kernel(self, func: Any) -> None:
        """A kernel ran that is no function of torch: refused, once outside of compiled code, if it is attention."""
        name = self.running[-1].name
        complaint = kernel_complaint(func, name) if self._is_wanted(name) else None
        if complaint is not None and (torch.compiler.is_compiling() or not runs_compiled_kernel()):
            self._pending = Pending(GeoattnError(complaint), self._pending)
            if not torch.compiler.is_compiling():
                self.deliver()

    def softmax(self, argument: Any, out: Any, axis: int) -> None:
        """A softmax ran: attention, perhaps."""
        self.tracker.begin(argument, out, axis, len(self.running), self.running[-1].name)

    def log_softmax(self, argument: Any, out: Any, axis: int) -> None:
        """A log_softmax ran: its exponential may be attention."""
        self.tracker.begin_log(argument, out, axis)

    def merged(self, args: Any, kwargs: Any, out: Any) -> None:
        """Axes were put into one, perhaps batch and heads."""
        note_merge(self.merges, args, kwargs, out, len(self.running))

    def follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run any other function, and record it when it multiplies weights with values."""
        tracker, module = self.tracker, self.running[-1]
        out, found = tracker.run(func, args, kwargs, len(self.running), module.name)
        if self.streams.depth:
            self.streams.note(args, kwargs, out)
        if found is None:
            return out
        refuse_tensor(found.product.left, module.name)
        softmax, derived = found.softmax, found.derived
        if softmax.use == "captured" or softmax.use == "not chosen" or softmax.use == "block-sparse":
            if found.product.left.shape[-1] < softmax.result.shape[softmax.axis]:
                softmax.use = "block-sparse"  # a second part of a row
            return out  # another part of weights that were recorded as a whole
        softmax.use = judge(found, tracker, token_counts(module))
        if softmax.use == "factorised":
            self.factorised = module.name
        elif softmax.use == "captured" and self.factorised == module.name:
            softmax.use = "factorised"
        if softmax.use != "captured":
            tracker.add_context(out, len(self.running))
        else:
            pair = None if softmax.scores is None else queries_and_keys(softmax.scores, softmax.axis)
            masked = derived.masked or softmax.argument is softmax.result
            argument, product = None if masked else softmax.argument, found.product
            whole = derived.whole
            if whole is not None and whole.axis == -1 and product.left.numel() < whole.weights.numel():
                if product.left.shape[-1] == whole.weights.shape[-1]:  # some heads, samples or rows of it
                    product = product._replace(left=whole.weights, steps=None)
            used = None
            if derived.dropped or product.left is not found.product.left:
                again: Any = weighted_sum(found.factors, out, derived.tensor, derived.tensor, derived.axis)
                used = again.left
            cut = softmax.result.shape[softmax.axis] - product.left.shape[-1]
            scores = softmax.scores
            if not self.weighted(argument, product, pair, derived, found.factors.operands, used, cut, scores):
                softmax.use = "not chosen"
        if derived.whole is None:
            tracker.close(softmax)
        return out

    def weighted(
        self, argument: Any, product: Product, pair: Any, derived: Any, operands: Any = (), used: Any = None,
        sink: int = 0, scores: Any = None,
    ) -> bool:  # fmt: skip
        """Weights that the model made were multiplied with values. ``pair`` are queries and keys, if known.

        ``derived`` says whether dropout was active. ``used`` are the weights that were multiplied, if they differ from
        those of the product: with dropout, or a part of them. ``scores`` are the factors of the scores. False: the call
        is not recorded.
        """
        if self._passes():
            return False
        weights, values = product.left, product.right
        n, m = weights.shape[-2:]
        context = describe(self.running, n, m, self.with_inputs, self._other(scores))
        peaks = None
        if context.key_mask is None and not context.whole and argument is not None:
            peaks = argument.detach().amax(dim=-2)
        if pair is not None and (pair[0].shape[-2], pair[1].shape[-2]) != (n, m):
            pair = None  # the softmax went over a part of the scores, or over more than them
        query, key = pair if self.with_inputs and pair is not None else (None, None)
        part = used is not None and used.shape != weights.shape  # then the values are those of a part
        self._add(
            RawCall(
                context,
                weights=_own(weights),
                query=query,
                key=key,
                value=_own(values) if self.with_inputs and not part else None,
                merge=self._merge(weights.ndim, operands or (values,), context),
                steps=product.steps,
                peaks=peaks,
                dropout=derived.dropped or part,
                sink=sink,
                inputs=self.with_inputs,
                random=derived.random,
                probe=None if product.result is None else _probe(values, product.result, derived.dropped or part, used),
            )
        )
        return True

    def _other(self, scores: Any) -> Any:
        """The sequence that the keys come from, if queries come from another."""
        if scores is None or self.streams.depth == 0 or len(scores.operands) != 2:
            return None
        first, second = scores.operands
        return self.streams.source_of_keys(first, second)

    def _tell(self, softmax: Any) -> None:
        """Say what became of a softmax."""
        if not self.listeners or (not torch.compiler.is_compiling() and in_backward()):
            return
        if softmax.result.is_nested:
            return
        use = softmax.use if softmax.use is not None else leftover_use(softmax, softmax.touched)
        shape = tuple([int(size) for size in softmax.result.shape])
        self._add(SoftmaxUse(softmax.name, shape, softmax.axis, use))

    def _is_wanted(self, name: str) -> bool:
        return self.wanted is None or name in self.wanted

    def _passes(self) -> bool:
        """True when this call is not to be recorded: another layer, or a second run by checkpointing."""
        if not self.listeners:
            return True
        name = self.running[-1].name
        if not torch.compiler.is_compiling():
            if in_backward():
                return True
            if self.had_gradients and not torch.is_grad_enabled():
                refuse_reentrant(name)
        if not self._is_wanted(name):
            self._pending = Pending(name, self._pending)
            return True
        return False

    def _merge(self, ndim: int, tensors: Any, context: Any) -> Any:
        """(heads, whether they are outer) of joined axes, if it is known."""
        if ndim == 3 and self.merges:
            return split_merge(self.merges, tensors, context.heads, context.batch)
        return None

    def _add(self, call: Any) -> None:
        if torch.compiler.is_compiling():
            self._pending = Pending(call, self._pending)
            return
        if self._pending.content is not None:
            self.deliver()
        if isinstance(call, RawCall):
            self._part = self._part + 1 if self.running[-1] is self._last_run else 0
            self._last_run = self.running[-1]
            if self._part:
                call = call._replace(part=self._part)
        self._receive(call)

    def _receive(self, content: Any) -> None:
        for listener in list(self.listeners):
            listener.receive(content)


@no_type_check
def _probe(value: Any, out: Any, dropout: bool, used: Any = None) -> Any:
    """Values and output of the first head of the first sample, and some rows of its weights with dropout."""
    first, place = (0,) * (value.ndim - 2), (0,) * (out.ndim - 2)
    rows = None if used is None else used.detach()[(0,) * (used.ndim - 2)][:PROBED_ROWS].clone()
    return value.detach()[first].clone(), out.detach()[place].clone(), rows, dropout


@no_type_check
def _own(x: Any) -> Any:
    """A copy of tensors of inference mode: those do not tell when something changes them in place."""
    return x.clone() if not torch.compiler.is_compiling() and x.is_inference() else x
