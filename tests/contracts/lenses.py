"""The laws of lenses, for registered ones and for a user's own: ``check_lens(lens)``."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

import geoattn as ga
from geoattn.profiles import Lens, Piece, Row
from geoattn.profiles.batches import evaluation, read_batch
from geoattn.profiles.pieces import pieces

SAMPLES = 70  # more than are folded together
TOKENS, HEADS, WIDTH, LAYERS = 6, 2, 4, 2
LEVEL = 0.9
SPLITS = ([SAMPLES], [1] * SAMPLES, [33, 20, 17])
FEW_SPLITS = ([8], [1] * 8, [5, 3])  # of lenses with a forward pass of their own


class TwoLayers(nn.Module):
    """Two layers of attention with two heads, in float64, with padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        attention = [nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(LAYERS)]
        self.layers = nn.ModuleList(attention).double()

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            tokens = tokens + layer(tokens, tokens, tokens, key_padding_mask=padding, need_weights=False)[0]
        return tokens


@cache
def example_model() -> nn.Module:
    """The model whose attention the laws are checked on; lenses with a pass of their own need it."""
    return TwoLayers().eval()


def example_batch(samples: slice = slice(None)) -> dict[str, torch.Tensor]:
    """Its inputs; every third sample has one token less."""
    tokens = 2 * torch.randn(SAMPLES, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    padding = torch.zeros(SAMPLES, TOKENS, dtype=torch.bool)
    padding[::3, -1] = True
    return {"tokens": tokens[samples], "padding": padding[samples]}


def check_lens(lens: Lens) -> None:
    """All laws. A lens with a pass of its own must have been made for `example_model`."""
    assert isinstance(lens.name, str)
    assert lens.name
    assert isinstance(lens.convention, str)
    splits = FEW_SPLITS if lens.own_pass else SPLITS
    seen = {k: [_states(lens, split)[layer] for layer in range(LAYERS)] for k, split in enumerate(splits)}
    whole = [states[0] for states in seen[0]]
    _rows_are_rows(lens, whole)
    for k in range(1, len(splits)):
        for layer in range(LAYERS):
            _merges_in_any_way(lens, seen[k][layer], whole[layer])
    _seeing_twice_is_the_same(lens, splits[-1], seen[len(splits) - 1])
    _other_states_stay(lens, seen[1][0])
    if not lens.own_pass:
        _heads_may_come_apart(lens, whole)
    _profiles_do_not_depend_on_batches(lens)


def _full_pieces() -> Iterator[Piece]:
    """One piece per layer, with all samples and heads."""
    with torch.no_grad(), ga.capture(example_model()) as record:
        example_model()(**example_batch())
    for layer, call in enumerate(record):
        (piece,) = pieces(call, None, numbers=np.arange(SAMPLES), layer=layer, first=0)
        assert piece.attention.shape == (SAMPLES, HEADS, TOKENS, TOKENS)
        assert not piece.valid.all()
        yield piece


def _part(piece: Piece, samples: slice, heads: slice = slice(0, HEADS)) -> Piece:
    return replace(
        piece, attention=piece.attention[samples, heads], valid=piece.valid[samples, heads], samples=samples,
        heads=heads, numbers=piece.numbers[samples], first=piece.first + samples.start,
    )  # fmt: skip


def _slices(split: Sequence[int]) -> Iterator[slice]:
    first = 0
    for size in split:
        yield slice(first, first + size)
        first += size


def _states(lens: Lens, split: Sequence[int]) -> list[list[Any]]:
    """[layer][part]: what the lens saw of each part of the same maps."""
    found: list[list[Any]] = [[] for _ in range(LAYERS)]
    if lens.own_pass:
        for samples in _slices(split):
            batch = read_batch(example_batch(samples), example_model(), 0)
            with evaluation(example_model()):
                for layer, (_, state) in enumerate(lens.see_batch(batch, samples.start)):
                    found[layer].append(state)
        return found
    for layer, piece in enumerate(_full_pieces()):
        before = piece.attention.clone(), piece.valid.copy()
        found[layer] = [lens.see(_part(piece, samples)) for samples in _slices(split)]
        assert torch.equal(before[0], piece.attention), "the maps were changed in place"
        assert (before[1] == piece.valid).all()
    return found


def _all_rows(lens: Lens, states: Sequence[Any]) -> list[tuple[str, Row]]:
    """Rows of each head, each layer and the whole model, from copies."""
    states = copy.deepcopy(list(states))
    found = []
    for layer, state in enumerate(states):
        for head in range(HEADS):
            found += [(f"layer {layer}, head {head}", row) for row in lens.rows([state], slice(head, head + 1), LEVEL)]
        found += [(f"layer {layer}", row) for row in lens.rows([state], slice(None), LEVEL)]
    return found + [("model", row) for row in lens.rows(states, slice(None), LEVEL)]


def _assert_same_rows(one: list[tuple[str, Row]], two: list[tuple[str, Row]], tolerance: float = 1e-12) -> None:
    assert [(place, row.lens, row.statistic) for place, row in one] == [
        (place, row.lens, row.statistic) for place, row in two
    ]
    for (place, a), (_, b) in zip(one, two, strict=True):
        where = f"{place}, {a.statistic}"
        assert a.count == b.count, where
        for name in ("value", "lower", "upper", "half_width"):
            x, y = getattr(a, name), getattr(b, name)
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=f"{where}: {name}")


def _rows_are_rows(lens: Lens, states: Sequence[Any]) -> None:
    """Every head, every layer and the model have rows; estimates lie in their intervals; reading changes nothing."""
    rows = _all_rows(lens, states)
    keys = [(place, row.lens, row.statistic) for place, row in rows]
    assert len(set(keys)) == len(keys), "a statistic is there twice"
    for layer in range(LAYERS):
        by_head = [{row.statistic for place, row in rows if place == f"layer {layer}, head {h}"} for h in range(HEADS)]
        of_layer = {row.statistic for place, row in rows if place == f"layer {layer}"}
        assert all(by_head)
        assert of_layer >= set.union(*by_head)
    of_model = {row.statistic for place, row in rows if place == "model"}
    assert of_model
    assert of_model <= {row.statistic for place, row in rows if place != "model"}
    for _, row in rows:
        assert type(row.value) is float
        assert isinstance(row.count, int)
        assert row.count >= 0
        if np.isfinite([row.lower, row.upper]).all():
            assert row.lower <= row.upper
    twice = copy.deepcopy(list(states))
    first = [list(lens.rows([state], slice(None), LEVEL)) for state in twice]
    again = [list(lens.rows([state], slice(None), LEVEL)) for state in twice]
    for a, b in zip(first, again, strict=True):
        _assert_same_rows([("again", row) for row in a], [("again", row) for row in b], 0.0)
    assert all(isinstance(note, str) for note in lens.notes(twice))
    for state in twice:
        for name, both in lens.resampled(state).items():
            assert name in of_model
            assert both.shape[0] == 2
            assert both.ndim == 2


def _merged(lens: Lens, states: Sequence[Any]) -> Any:
    total, *rest = copy.deepcopy(list(states))
    for state in rest:
        total = lens.merge(total, state)
    return total


def _merges_in_any_way(lens: Lens, parts: Sequence[Any], whole: Any) -> None:
    """One by one, in a tree, through pickles, and with a look at the rows between: always what one piece gives."""
    expected = _all_rows(lens, [_merged(lens, parts)])
    # a pass of its own has other roundings for other batches, and searches to a tolerance
    _assert_same_rows(_all_rows(lens, [whole]), expected, 1e-5 if lens.own_pass else 1e-12)
    middle = len(parts) // 2
    tree = lens.merge(_merged(lens, parts[:middle]), _merged(lens, parts[middle:]))
    _assert_same_rows(_all_rows(lens, [tree]), expected)
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    _assert_same_rows(_all_rows(lens, [_merged(lens, sent)]), expected)
    total = _merged(lens, parts[:middle])
    list(lens.rows([total], slice(None), LEVEL))
    _assert_same_rows(_all_rows(lens, [lens.merge(total, _merged(lens, parts[middle:]))]), expected)


def _seeing_twice_is_the_same(lens: Lens, split: Sequence[int], seen: Sequence[Sequence[Any]]) -> None:
    for layer, parts in enumerate(_states(lens, split)):
        for one, two in zip(parts, seen[layer], strict=True):
            _assert_same_rows(_all_rows(lens, [one]), _all_rows(lens, [two]), 0.0)


def _other_states_stay(lens: Lens, parts: Sequence[Any]) -> None:
    """`merge` may change its first state; the second one stays, also when more is merged into the result.

    The second state holds most of the samples, and then one of them.
    """
    for cut in (1, len(parts) - 3):
        some = copy.deepcopy(list(parts))
        other = _merged(lens, some[cut:-2])
        before = _all_rows(lens, [other])
        total = lens.merge(_merged(lens, some[:cut]), other)
        _assert_same_rows(_all_rows(lens, [other]), before, 0.0)
        for state in some[-2:]:
            total = lens.merge(total, state)
        list(lens.rows([total], slice(None), LEVEL))
        _assert_same_rows(_all_rows(lens, [other]), before, 0.0)


def _heads_may_come_apart(lens: Lens, whole: Sequence[Any]) -> None:
    """Pieces of large maps hold some heads only."""
    for piece, expected in zip(_full_pieces(), whole, strict=True):
        parts = [
            lens.see(_part(piece, samples, slice(head, head + 1)))
            for samples in _slices([40, 30])
            for head in range(HEADS)
        ]
        _assert_same_rows(_all_rows(lens, [_merged(lens, parts)]), _all_rows(lens, [expected]))


def _profiles_do_not_depend_on_batches(lens: Lens) -> None:
    """`profile` has the rows of the lens, and they are the same for batches of any size."""
    size = 8
    halves = [example_batch(slice(0, 3)), example_batch(slice(3, size))]
    options = {"lenses": [lens] if lens.name != "curvature" else [], "examples": 0}
    one = ga.profile(example_model(), [example_batch(slice(0, size))], **options)
    two = ga.profile(example_model(), halves, **options)
    assert (one.table["lens"] == lens.name).any()
    mine = [profile.table[profile.table["lens"] == lens.name].reset_index(drop=True) for profile in (one, two)]
    for name in ("layer", "head", "statistic", "samples", "count"):
        assert mine[0][name].astype(str).tolist() == mine[1][name].astype(str).tolist()
    tolerance = 1e-5 if lens.own_pass else 1e-9  # a forward pass rounds by its batch
    for name in ("value", "lower", "upper"):
        np.testing.assert_allclose(mine[0][name], mine[1][name], rtol=tolerance, atol=tolerance)
