"""The account of a record: what became of every softmax that ran inside the model."""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

from geoattn.attention.followed_tensors import Softmax, WeightedSum
from geoattn.attention.products import is_parameter

__all__ = ["SoftmaxUse", "judge", "leftover_use"]

#: What a softmax may be beside captured attention, and what is said of it.
MEANINGS = {
    "captured": "attention, recorded",
    "fused": "attention in a fused kernel, recorded",
    "not chosen": "attention in a layer that was not chosen",
    "router": "the best entries are chosen: a router",
    "classifier": "nothing is summed up with it: a classifier, or an output",
    "pooling": "a weighted mean over tokens with one row, or learned rows: a pooling",
    "mixed": "it is mixed into another map, which is recorded",
    "gate": "it scales other tensors and is not summed up with values: a gate",
    "linear attention": "a softmax over features, or keys that are summed up before the queries come: no map of tokens",
    "channel attention": "the map is between channels, not between tokens",
    "prototypes": "the values are parameters of the model: a codebook",
    "block-sparse": "rows are cut into parts that meet different values: block-sparse or banded attention",
    "factorised": "it is multiplied with another softmax: a factor of an approximation of attention",
    "deformable": "it weighs sampled points, not all pairs of tokens: deformable attention",
    "hidden": "it ran where Python does not see it, in TorchScript or in a kernel of another library",
    "unexplained": "it is made from a product of queries and keys, and its product with values was not seen",
}
#: Attention that the record lacks: the end of the block warns of it.
MISSING = ("block-sparse", "factorised", "deformable", "hidden", "unexplained")
#: A part of such attention may look like a map of its own: it is not recorded either.
IN_PARTS = ("block-sparse", "factorised")
_SINKS = 4  # columns that a model may cut off after the softmax: those of sinks


class SoftmaxUse(NamedTuple):
    """One softmax of the model: the module it ran in, its shape and axis, and what it is (see `Record.account`).

    Examples
    --------
    >>> from geoattn.attention import SoftmaxUse
    >>> SoftmaxUse("gate", (4, 8), -1, "router").is_missing
    False
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    use: str

    @property
    def meaning(self) -> str:
        """The use in words."""
        return MEANINGS[self.use]

    @property
    def in_parts(self) -> bool:
        """True when other softmaxes of the module are parts of the same attention."""
        return self.use in IN_PARTS

    @property
    def is_missing(self) -> bool:
        """True for attention that the record lacks."""
        return self.use in MISSING


@no_type_check  # traced by torch.compile
def judge(found: WeightedSum, tracker: Any, counts: list[int]) -> str:
    """What a weighted sum is. ``counts`` are the numbers of tokens that the module may have been given."""
    softmax, weights, values = found.softmax, found.product.left, found.product.right
    n, m = weights.shape[-2:]
    if found.of_weights:
        return "factorised"
    if is_parameter(values):
        return "prototypes"
    if values.shape[0] > 1 and values.ndim > 2 and values.stride(0) == 0:
        return "prototypes"
    if tracker.is_context(found.factors):
        return "linear attention"
    if m < softmax.result.shape[softmax.axis] - _SINKS:
        return "block-sparse"
    if softmax.scores is None:
        if values.ndim < 3 or (n != m and n not in counts):
            return "pooling" if n == 1 or values.ndim < 4 else "linear attention"
    elif is_of_channels(softmax.scores.operands[0], n, m, values.shape[-1], counts):
        return "channel attention"
    return "captured"


@no_type_check  # traced by torch.compile
def is_of_channels(query: Any, n: int, m: int, width: int, counts: list[int]) -> bool:
    """Whether the rows of a map are channels: the products go over the tokens instead.

    ``query`` (..., n, inner) is the left factor of the scores, ``width`` the number of columns of the values.
    """
    if n != m or n in counts or width not in counts or query.shape[-1] not in counts:
        return False
    return query.stride(-2) < query.stride(-1) or query.shape[-1] != width or width > 2 * n


@no_type_check
def leftover_use(softmax: Softmax, touched: bool) -> str:
    """What a softmax is whose product with values was not seen."""
    if softmax.use is not None:
        return softmax.use
    if softmax.scores is not None:
        return "block-sparse" if softmax.broken else "unexplained"
    return "gate" if touched else "classifier"
