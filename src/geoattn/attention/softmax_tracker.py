"""From scores to weights to values: which softmax of a model is attention.

A softmax may be attention, a router or a classifier. It is attention when its result (cast, reshaped, masked, mixed,
cut or dropped out on the way) is multiplied with values and summed over the axis of the softmax. The tracker follows
the product of queries and keys to the softmax, and the result of the softmax to the product with the values.

torch.compile traces this code: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

from geoattn.attention.axis_tracking import VIEWS, axis_after
from geoattn.attention.products import PRODUCTS, Product, factors_of, is_parameter, weighted_sum

__all__ = ["LOG_SOFTMAXES", "SOFTMAXES", "Softmax", "SoftmaxTracker", "WeightedSum", "softmax_axis"]

_REMEMBERED = 48  # tensors that are followed at once
_LIFETIME = 256  # functions after which a tensor that nothing was made from is forgotten

LOG_SOFTMAXES = (functional.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax)
SOFTMAXES = (
    functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, functional.gumbel_softmax,
)  # fmt: skip
_CASTS = (
    Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double,
)  # fmt: skip
_DROPOUTS = (
    functional.dropout, torch.dropout, torch.dropout_, functional.dropout1d, functional.dropout2d,
    functional.dropout3d, functional.alpha_dropout, functional.feature_alpha_dropout,
)  # fmt: skip
_STORES = (Tensor.__setitem__,)  # write into their first argument and return nothing
_IN_PLACE = tuple(
    getattr(Tensor, name) for name in dir(Tensor)
    if (name.endswith("_") and not name.startswith("_")) or (name.startswith("__i") and name[3:-2] in (
        "add", "sub", "mul", "div", "truediv", "floordiv", "pow"))
)  # fmt: skip
_EXPONENTIALS = (torch.exp, Tensor.exp)
_SELECTIONS = (
    torch.topk, Tensor.topk, torch.argmax, Tensor.argmax, torch.multinomial, Tensor.multinomial, torch.sort,
    Tensor.sort, torch.argsort, Tensor.argsort, torch.max, Tensor.max,
)  # fmt: skip
_LINEAR = (functional.linear, functional.conv1d, functional.conv2d, torch.conv1d, torch.conv2d)


@no_type_check
class Softmax:
    """One softmax that ran: its ``argument`` and ``result``, its ``axis`` counted from the end, and what led to it.

    ``scores`` are the factors of the product that the argument was made from, None when it was not made from one.
    ``depth`` is the number of modules that were running, ``name`` that of the innermost. ``use`` is what became of it,
    as far as it is known: see `geoattn.attention.account`.
    """

    def __init__(self, argument: Any, result: Any, axis: int, scores: Any, depth: int, name: str) -> None:
        self.argument = argument
        self.result = result
        self.axis = axis
        self.scores = scores
        self.depth = depth
        self.name = name
        self.use = None
        self.touched = False  # something else than a cast or a view was made from it


class Derived(NamedTuple):
    """A tensor that was made from the result of a softmax.

    ``weights`` is the same without dropout. ``axis`` is that of the softmax, counted from the end; None when it was
    summed away or broken up. ``dropped``: dropout was active. ``masked``: something else than a cast or a view came
    after the softmax. ``whole`` is the last one on the way that was as large as the result of the softmax, when this
    one is a part of it.
    """

    tensor: Any
    weights: Any
    axis: int | None
    softmax: Softmax
    dropped: bool
    masked: bool
    time: int
    whole: Any = None


class Score(NamedTuple):
    """A tensor that was made from a product of queries and keys, perhaps."""

    factors: Any
    tensor: Any
    depth: int


class WeightedSum(NamedTuple):
    """Weights times values: the end of the way of a softmax."""

    softmax: Softmax
    derived: Derived
    product: Product
    factors: Any
    of_weights: bool  # the values come from a softmax too


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
        self.time = 0

    def is_following(self) -> bool:
        """True while a tensor is on its way from scores to weights to values."""
        return bool(self.scores) or bool(self.derived) or bool(self.logs)

    def begin_log(self, argument: Any, result: Any, axis: int) -> None:
        """A log_softmax ran: its exponential is a softmax."""
        self.logs.append((result, argument, axis))
        if len(self.logs) > _REMEMBERED:
            del self.logs[0]

    def begin(self, argument: Any, result: Any, axis: int, depth: int, name: str) -> Softmax:
        """A softmax ran."""
        scores = None
        for score in self.scores:
            if score.tensor is argument:
                scores = score.factors
        self.scores.clear()
        softmax = Softmax(argument, result, axis, scores, depth, name)
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
        if self.logs and func in _EXPONENTIALS:
            for logarithm, argument, axis in self.logs:
                if logarithm is args[0]:
                    out = func(*args, **kwargs)
                    self.begin(argument, out, axis, depth, name)
                    return out, None
        given = _among(self.derived, args, kwargs) if self.derived else []
        if given and func in _DROPOUTS and self._save_weights(func, args, kwargs):
            given = _among(self.derived, args, kwargs)
        before = _copies(func, args, given) if given else None
        out = func(*args, **kwargs)
        if func in PRODUCTS:
            factors = factors_of(func, args, kwargs)
            if factors is not None:
                for one in given:
                    if one.axis is not None:
                        product = weighted_sum(factors, out, one.tensor, one.weights, one.axis)
                        if product is not None:
                            if one.whole is None:
                                self._forget(one.softmax)
                            return out, WeightedSum(one.softmax, one, product, factors, _are_weights(given, one, name))
                if not given and _is_of_batches(factors):
                    if self.derived:
                        self.add_context(out, depth)
                    self._add_score(Score(factors, out, depth))
                    return out, None
        if given and func in _SELECTIONS:
            given[0].softmax.use = given[0].softmax.use or "router"
        if func is functional.grid_sample:
            for softmax in self.open:
                softmax.use = softmax.use or "deformable"
        if given:
            self._derive(func, args, kwargs, out, given, before)
        elif self.scores:
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
        if func in _STORES:
            if before is not None:
                func(before, *_clean(args[1:], given), **kwargs)
                self._replace(main._replace(weights=before, masked=True, time=self.time))
            return
        if func in _DROPOUTS:
            active = _is_active(func, args, kwargs)
            self._remember(main._replace(tensor=out, dropped=main.dropped or active, time=self.time))
            return
        in_place = len(args) > 0 and out is args[0]
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        weights = outs
        if func in _CASTS and isinstance(out, Tensor):
            weights = [main.weights]
        elif dropped and before is not None:
            func(before, *_clean(args[1:], given), **_clean_dict(kwargs, given))
            weights = [before]
        elif (dropped and not in_place and "out" not in kwargs) or (func in VIEWS and main.weights is not main.tensor):
            again = func(*_clean(args, given), **_clean_dict(kwargs, given))
            weights = list(again) if isinstance(again, (tuple, list)) else [again]
        plain = func in _CASTS or func in VIEWS
        whole = main.whole
        if whole is None and any([isinstance(t, Tensor) and t.numel() < main.tensor.numel() for t in outs]):
            whole = main
        for tensor, clean in zip(outs, weights):  # noqa: B905
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.ndim > 0:
                axis = axis_after(func, args, kwargs, main.tensor, main.axis, tensor)
                masked = main.masked or not plain
                main.softmax.touched = main.softmax.touched or masked
                step = Derived(tensor, clean, axis, main.softmax, dropped, masked, self.time, whole)
                if in_place:
                    self._replace(step)
                elif axis is not None or dropped:  # without the axis it is needed only to repeat what follows
                    self._remember(step)

    def _follow_scores(self, func: Any, args: Any, kwargs: Any, out: Any, depth: int) -> None:
        if not isinstance(out, Tensor) or not out.is_floating_point():
            return
        for value in _tensors(args, kwargs):
            for score in self.scores:
                if score.tensor is value and out.numel() >= value.numel():
                    if func not in _LINEAR or (value.ndim == 4 and out.numel() == value.numel()):
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
        if not _is_active(func, args, kwargs) or not _is_in_place(func, args, kwargs):
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


@no_type_check
def softmax_axis(func: Any, args: Any, kwargs: Any, out: Any) -> int | None:
    """The axis of a softmax, counted from the end; None for one over a single number."""
    if func is functional.gumbel_softmax:
        axis = kwargs.get("dim", args[4] if len(args) > 4 else -1)
    else:
        axis = kwargs["dim"] if "dim" in kwargs else (args[1] if len(args) > 1 else None)
    if out.ndim == 0 or not out.is_floating_point():
        return None
    if axis is None:
        axis = 0 if out.ndim in (1, 3) else 1  # what torch takes when it is not told
    return axis if axis < 0 else axis - out.ndim


@no_type_check
def _among(derived: Any, args: Any, kwargs: Any) -> list[Derived]:
    """The tensors among the arguments that are followed, in the order of the arguments."""
    found = []
    for value in _tensors(args, kwargs):
        for i in range(len(derived) - 1, -1, -1):
            if derived[i].tensor is value:
                found.append(derived[i])
                break
    return found


@no_type_check
def _are_weights(given: Any, current: Derived, name: str) -> bool:
    """Whether the other operand is a map of attention of the same module."""
    for one in given:
        softmax = one.softmax
        if one is not current and one.axis is not None and softmax.scores is not None and softmax.name == name:
            return True
    return False


@no_type_check
def _tensors(args: Any, kwargs: Any) -> list[Any]:
    """Tensors among the arguments, and in lists of them."""
    found = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            for inner in value:
                if isinstance(inner, Tensor):
                    found.append(inner)
    return found


@no_type_check
def _copies(func: Any, args: Any, given: Any) -> Any:
    """A copy of the weights without dropout that a function in place would change; None when it is none."""
    for one in given:
        if one.dropped and len(args) > 0 and one.tensor is args[0] and (func in _STORES or func in _IN_PLACE):
            return one.weights.to(one.tensor.dtype, copy=True)
    return None


@no_type_check
def _clean(args: Any, given: Any) -> list[Any]:
    """The arguments without dropout."""
    clean = []
    for value in args:
        if isinstance(value, (list, tuple)) and any([isinstance(inner, Tensor) for inner in value]):
            clean.append(type(value)([_without_dropout(inner, given) for inner in value]))
        else:
            clean.append(_without_dropout(value, given))
    return clean


@no_type_check
def _clean_dict(kwargs: Any, given: Any) -> dict[str, Any]:
    return {key: _without_dropout(value, given) for key, value in kwargs.items()}


@no_type_check
def _without_dropout(value: Any, given: Any) -> Any:
    for one in given:
        if one.tensor is value:
            return one.weights if one.weights.dtype == value.dtype or not one.dropped else one.weights.to(value.dtype)
    return value


@no_type_check
def _is_of_batches(factors: Any) -> bool:
    """A product of two tensors that both depend on the input, over more than one number: scores, perhaps."""
    operands = factors.operands
    if len(operands) != 2 or any([is_parameter(operand) for operand in operands]):
        return False
    first, second = operands
    if first.ndim < 2 or second.ndim < 2:
        return False
    return factors.letters is not None or (first.ndim == second.ndim and first.shape[-1] > 1)


@no_type_check
def _is_active(func: Any, args: Any, kwargs: Any) -> bool:
    p = kwargs["p"] if "p" in kwargs else (args[1] if len(args) > 1 else 0.5)
    word = "train" if func is torch.dropout or func is torch.dropout_ else "training"
    training = kwargs[word] if word in kwargs else (args[2] if len(args) > 2 else True)
    return bool(training) and p > 0


@no_type_check
def _is_in_place(func: Any, args: Any, kwargs: Any) -> bool:
    if func is torch.dropout_:
        return True
    if func is torch.dropout:
        return False
    return bool(kwargs["inplace"]) if "inplace" in kwargs else len(args) > 3 and bool(args[3])
