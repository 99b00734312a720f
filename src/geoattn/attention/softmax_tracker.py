"""From scores to weights to values: which softmax of a model is attention.

A softmax may be attention, a router or a classifier. It is attention when its result (cast, reshaped, masked, mixed,
cut or dropped out on the way) is multiplied with values and summed over the axis of the softmax. The tracker follows
the product of queries and keys to the softmax, and the result of the softmax to the product with the values.

torch.compile traces this code: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

from geoattn.attention.axis_tracking import VIEWS, axis_after
from geoattn.attention.followed_tensors import (
    Derived,
    Score,
    Softmax,
    WeightedSum,
    are_weights,
    find_derived,
    is_of_batches,
    is_one_of,
    tensors_of,
)  # fmt: skip
from geoattn.attention.function_kinds import (
    CASTS,
    CUTS,
    DROPOUTS,
    EXPONENTIALS,
    LINEAR,
    RANDOM,
    SELECTIONS,
    SHAPED,
    STORES,
    is_active_dropout,
    is_dropout_in_place,
)  # fmt: skip
from geoattn.attention.products import PRODUCTS, factors_of, weighted_sum
from geoattn.attention.without_dropout import clean_arguments, clean_keywords, copy_before_change

__all__ = ["SoftmaxTracker"]

_REMEMBERED = 48  # tensors that are followed at once
_LIFETIME = 256  # functions after which a tensor that nothing was made from is forgotten


@no_type_check
class SoftmaxTracker:
    """Follows scores and weights from function to function while a model runs."""

    def __init__(self) -> None:
        self.scores: list[Score] = []
        self.derived: list[Derived] = []
        self.contexts: list[Any] = []  # (product of batches that is no tensor of values, depth)
        self.open: list[Softmax] = []  # what became of them is not known yet
        self.closed: list[Softmax] = []  # it is known, and waits to be told
        self.logs: list[Any] = []  # (result of a log_softmax, its argument, its axis)
        self.selected: list[Any] = []  # the best entries of a tensor
        self.random: list[Any] = []  # masks of random numbers
        self.time = 0

    def is_following(self) -> bool:
        """True while a tensor is on its way from scores to weights to values."""
        return bool(self.scores) or bool(self.derived) or bool(self.logs)

    def begin_log(self, argument: Any, result: Any, axis: int) -> None:
        """A log_softmax ran: its exponential is a softmax."""
        self.logs.append((result, argument, axis))
        if len(self.logs) > _REMEMBERED:
            del self.logs[0]

    def select(self, out: Any) -> None:
        """The best entries of a tensor were chosen: a softmax of them is a router."""
        self.selected = [out[0] if isinstance(out, tuple) else out]

    def begin(self, argument: Any, result: Any, axis: int, depth: int, name: str) -> Softmax:
        """A softmax ran."""
        scores = None
        for score in self.scores:
            if score.tensor is argument:
                scores = score.factors
        self.scores.clear()
        softmax = Softmax(argument, result, axis, scores, depth, name)
        if is_one_of(self.selected, argument):
            softmax.use = "router"
        self.open.append(softmax)
        self._remember(Derived(result, result, axis, softmax, False, False, self.time))
        return softmax

    def is_score(self, tensor: Any) -> bool:
        """True for a tensor that was made from a product of queries and keys."""
        for score in self.scores:
            if score.tensor is tensor:
                return True
        return False

    def rename_score(self, before: Any, after: Any) -> None:
        """The scores ``before`` go on as ``after``."""
        for i in range(len(self.scores)):
            if self.scores[i].tensor is before:
                self.scores[i] = self.scores[i]._replace(tensor=after)

    def drop(self, weights: Any, dropped: Any) -> None:
        """The weights go on as ``dropped``, from which an intervention has removed something."""
        for one in self.derived:
            if one.tensor is weights:
                self._remember(one._replace(tensor=dropped, dropped=True, time=self.time))
                return

    def run(self, func: Any, args: Any, kwargs: Any, depth: int, name: str) -> tuple[Any, WeightedSum | None]:
        """Run a function; its result, and the weighted sum that it is, if it is one."""
        self.time += 1
        if self.logs and func in EXPONENTIALS:
            for logarithm, argument, axis in self.logs:
                if logarithm is args[0]:
                    out = func(*args, **kwargs)
                    self.begin(argument, out, axis, depth, name)
                    return out, None
        given = find_derived(self.derived, args, kwargs) if self.derived and func not in SHAPED else []
        if given and func in DROPOUTS and self._save_weights(func, args, kwargs):
            given = find_derived(self.derived, args, kwargs)
        before = copy_before_change(func, args, given) if given else None
        out = func(*args, **kwargs)
        if self.derived:
            self._note_random(func, args, kwargs, out)
        factors = factors_of(func, args, kwargs) if func in PRODUCTS else None
        if factors is not None:
            for one in given:
                if one.axis is not None:
                    product = weighted_sum(factors, out, one.tensor, one.weights, one.axis)
                    if product is not None:
                        if one.whole is None:
                            self._forget(one.softmax)
                        return out, WeightedSum(one.softmax, one, product, factors, are_weights(given, one, name))
            if is_of_batches(factors):
                if self.derived and not given:
                    self.add_context(out, depth)
                self._add_score(Score(factors, out, depth))
                if not given or (len(given) == 1 and factors.letters is None):  # a sum over another axis: no map
                    for one in given:
                        one.softmax.touched = True
                    return out, None
        if given and func in SELECTIONS:
            given[0].softmax.use = given[0].softmax.use or "router"
        if func is functional.grid_sample:
            for softmax in self.open:
                softmax.use = softmax.use or "deformable"
        if given:
            self._derive(func, args, kwargs, out, given, before)
        if self.scores and (factors is None or not is_of_batches(factors)):  # heads may be mixed before the softmax
            self._follow_scores(func, args, kwargs, out, depth)
        return out, None

    def add_context(self, product: Any, depth: int) -> None:
        """A product of batches is no tensor of values: linear attention makes one of keys and values."""
        self.contexts.append((product, depth))

    def is_context(self, factors: Any) -> bool:
        """True when an operand is itself a product of batches that was made after the softmax: linear attention."""
        for made, _ in self.contexts:
            for operand in factors.operands:
                if operand is made:
                    return True
        return False

    def leave(self, depth: int) -> None:
        """A module has ended and ``depth`` others are running: forget scores that nobody took further."""
        if depth == 0:
            self.scores.clear()
            self.derived.clear()
            self.contexts.clear()
            self.logs.clear()
            self.selected.clear()
            self.random.clear()
            self.time = 0
        elif self.scores or self.contexts:
            self.scores[:] = [score for score in self.scores if score.depth <= depth + 1]
            self.contexts[:] = [context for context in self.contexts if context[1] <= depth]
        if self.open:
            ended = [softmax for softmax in self.open if _is_over(softmax, depth)]
            for softmax in ended:
                self.close(softmax)

    def close(self, softmax: Softmax) -> None:
        """Nothing more is to be seen of a softmax."""
        self.open[:] = [other for other in self.open if other is not softmax]
        self._forget(softmax)
        self.closed.append(softmax)

    def _derive(self, func: Any, args: Any, kwargs: Any, out: Any, given: Any, before: Any) -> None:
        """Remember what a function made from tensors that are followed."""
        main = given[0]
        for one in given:
            if main.axis is None or (one.axis is not None and one.tensor.numel() > main.tensor.numel()):
                main = one
        dropped = any([one.dropped for one in given])
        for one in given:
            if one.softmax is not main.softmax and one.softmax.use is None:
                one.softmax.use = "mixed"
        if func in CUTS and main.softmax.use is None:
            main.softmax.use = "block-sparse"
        random = main.random
        if self.random:
            for value in tensors_of(args, kwargs):
                random = random or is_one_of(self.random, value)
        if func in STORES:
            if before is not None:
                func(before, *clean_arguments(args[1:], given), **kwargs)
                self._replace(main._replace(weights=before, masked=True, time=self.time))
            return
        if func in DROPOUTS:
            active = is_active_dropout(func, args, kwargs)
            self._remember(main._replace(tensor=out, dropped=main.dropped or active, time=self.time))
            return
        in_place = len(args) > 0 and out is args[0]
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        weights = outs
        if func in CASTS and isinstance(out, Tensor):
            weights = [main.weights]
        elif dropped and before is not None:
            func(before, *clean_arguments(args[1:], given), **clean_keywords(kwargs, given))
            weights = [before]
        elif (dropped and not in_place and "out" not in kwargs) or (func in VIEWS and main.weights is not main.tensor):
            again = func(*clean_arguments(args, given), **clean_keywords(kwargs, given))
            weights = list(again) if isinstance(again, (tuple, list)) else [again]
        plain = func in CASTS or func in VIEWS
        whole = main.whole
        if whole is None and any([isinstance(t, Tensor) and t.numel() < main.tensor.numel() for t in outs]):
            whole = main
        for tensor, clean in zip(outs, weights):  # noqa: B905
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.ndim > 0:
                axis = axis_after(func, args, kwargs, main.tensor, main.axis, tensor)
                masked = main.masked or not plain
                if axis is None and main.axis is not None and func in VIEWS:
                    main.softmax.broken = True
                main.softmax.touched = main.softmax.touched or masked
                step = Derived(tensor, clean, axis, main.softmax, dropped, masked, self.time, whole, random)
                if in_place:
                    self._replace(step)
                elif axis is not None or dropped:  # without the axis it is needed only to repeat what follows
                    self._remember(step)

    def _note_random(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Remember masks of random numbers, and what is made from them alone."""
        if not isinstance(out, Tensor):
            return
        made = func in RANDOM
        if self.random and not made:
            for value in tensors_of(args, kwargs):
                made = made or is_one_of(self.random, value)
            made = made and not find_derived(self.derived, args, kwargs)
        if made:
            self.random = [*self.random[-_REMEMBERED:], out]

    def _follow_scores(self, func: Any, args: Any, kwargs: Any, out: Any, depth: int) -> None:
        if func in STORES:  # scores that are written into another tensor
            out = args[0]
            args = (args[2],) if not self.is_score(out) else ()
        if not isinstance(out, Tensor) or not out.is_floating_point():
            return
        for value in tensors_of(args, kwargs):
            for score in self.scores:
                if score.tensor is value and (out.numel() >= value.numel() or func in STORES or func in VIEWS):
                    if func not in LINEAR or (value.ndim == 4 and out.numel() == value.numel()):
                        self._add_score(Score(score.factors, out, depth))
                    return

    def _add_score(self, score: Score) -> None:
        self.scores.append(score)
        if len(self.scores) > _REMEMBERED:
            del self.scores[0]

    def _remember(self, step: Derived) -> None:
        self.derived.append(step)
        oldest = self.derived[0]
        if len(self.derived) > _REMEMBERED or self.time - oldest.time > _LIFETIME:
            del self.derived[0]

    def _replace(self, step: Derived) -> None:
        """The tensor was changed in place."""
        for i in range(len(self.derived)):
            if self.derived[i].tensor is step.tensor:
                self.derived[i] = step

    def _forget(self, softmax: Softmax) -> None:
        self.derived[:] = [one for one in self.derived if one.softmax is not softmax]

    def _save_weights(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Save the weights that a dropout in place is about to overwrite; True if it is one."""
        if not is_active_dropout(func, args, kwargs) or not is_dropout_in_place(func, args, kwargs):
            return False
        for i in range(len(self.derived)):
            one = self.derived[i]
            if one.weights is args[0]:
                self.derived[i] = one._replace(weights=args[0].clone())
        return True


@no_type_check
def _is_over(softmax: Softmax, depth: int) -> bool:
    """Whether the product with the values can still come, when ``depth`` modules are running."""
    if torch.compiler.is_compiling() and depth == 1 and softmax.depth > 2:
        return True  # nothing may be left over from one compiled layer to the next
    return depth == 0 or depth < softmax.depth - 3
