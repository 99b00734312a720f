"""The laws of perturbations, for registered ones and for a user's own: ``check_perturbation(perturbation, inputs)``."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.perturbations import Combined, Perturbation, Perturbed, perturb

STRENGTHS = ("p", "rate")  # a field of one of these names is a share from 0 to 1, and 0 leaves everything alone


def check_perturbation(perturbation: Perturbation | Combined, inputs: Any) -> None:
    """All laws, on images (b, c, h, w) in [0, 1] or on a sequence of texts; at least eight different samples."""
    assert len(inputs) >= 8
    whole = perturb(inputs, perturbation, seed=7)
    _describes_itself(perturbation, whole)
    _keeps_the_form(perturbation, inputs, whole)
    _records_what_it_did(perturbation, inputs, whole)
    _depends_on_seed_and_row_alone(perturbation, inputs, whole)
    _strength_zero_is_the_identity(perturbation, inputs)
    _less_hits_a_part_of_more(perturbation, inputs, whole)
    _refuses_bad_input(perturbation, inputs)


def check_strength_is_checked(perturbation: Perturbation) -> None:
    """A strength outside of 0 to 1 is refused when the perturbation is made."""
    name = _strength(perturbation)
    assert name is not None
    for bad in (-0.1, 1.5, float("nan"), float("inf")):
        with pytest.raises(ga.GeoattnError, match=rf"{type(perturbation).__name__}.* {name} must be"):
            replace(perturbation, **{name: bad})


def _outputs(found: Perturbed) -> list[Any]:
    return list(found.texts if found.images is None else found.images)


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def _strength(part: Perturbation) -> str | None:
    return next((f.name for f in fields(part) if f.name in STRENGTHS), None)  # pyright: ignore[reportArgumentType]


def _with_strength(perturbation: Any, factor: float) -> Any:
    """Every strength times a factor; None when there is no strength to change."""
    if isinstance(perturbation, Combined):
        parts = [_with_strength(part, factor) for part in perturbation.parts]
        return None if None in parts else Combined(tuple(parts), perturbation.label)
    name = _strength(perturbation)
    return None if name is None else replace(perturbation, **{name: factor * getattr(perturbation, name)})


def _describes_itself(perturbation: Any, whole: Perturbed) -> None:
    assert perturbation.medium in ("images", "texts")
    assert isinstance(perturbation.name, str)
    assert perturbation.name == whole.name != ""
    assert type(perturbation).__name__ in repr(perturbation)
    settings = json.loads(json.dumps(perturbation.settings))
    assert settings["kind"]
    assert whole.settings["perturbation"] == perturbation.settings
    assert all(part.kind for part in perturbation.parts)
    again = replace(perturbation)  # a frozen dataclass: equal settings make equal perturbations
    assert again == perturbation
    assert hash(again) == hash(perturbation)
    with pytest.raises(AttributeError):
        setattr(perturbation, fields(perturbation)[0].name, None)


def _keeps_the_form(perturbation: Any, inputs: Any, whole: Perturbed) -> None:
    assert len(_outputs(whole)) == len(whole.parameters) == len(whole.hit) == len(whole.changed) == len(inputs)
    if perturbation.medium == "texts":
        assert whole.images is None
        assert all(type(text) is str for text in _outputs(whole))
        return
    assert whole.texts is None
    assert whole.images is not None
    assert whole.images.shape == inputs.shape
    assert whole.images.dtype == inputs.dtype
    assert 0 <= float(whole.images.min())
    assert float(whole.images.max()) <= 1


def _records_what_it_did(perturbation: Any, inputs: Any, whole: Perturbed) -> None:
    """Samples that were left alone are equal, and the record makes the others again."""
    for sample, after, hit, changed, record in zip(
        inputs, _outputs(whole), whole.hit, whole.changed, whole.parameters, strict=True
    ):
        assert hit == bool(record)
        assert changed == (not _same(sample, after))
        assert hit or not changed
        left = dict(record)
        for place, part in enumerate(perturbation.parts):
            nth = sum(other.kind == part.kind for other in perturbation.parts[: place + 1])
            drawn = left.pop(part.kind if nth == 1 else f"{part.kind} {nth}", None)
            sample = sample if drawn is None else part.apply(sample, drawn)
        assert not left
        assert _same(sample, after)


def _depends_on_seed_and_row_alone(perturbation: Any, inputs: Any, whole: Perturbed) -> None:
    before = inputs.clone() if isinstance(inputs, torch.Tensor) else list(inputs)
    states = (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    copy = pickle.loads(pickle.dumps(perturbation))
    for order in (range(len(inputs)), [3], [6, 0, 5], range(len(inputs) - 1, -1, -1)):
        part = perturb([inputs[i] for i in order] if isinstance(before, list) else inputs[list(order)], copy, 7,
                       rows=list(order))  # fmt: skip
        assert all(_same(a, _outputs(whole)[i]) for a, i in zip(_outputs(part), order, strict=True))
        assert part.parameters == tuple(whole.parameters[i] for i in order)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert all(_same(a, b) for a, b in zip(before, inputs, strict=True)), "the inputs were changed in place"
    if any(whole.parameters):
        others = [perturb(inputs, perturbation, seed).parameters for seed in range(8, 16)]
        fixed = all(other == whole.parameters for other in others)
        assert not fixed or whole.hit.all(), "no draw depends on the seed"


def _strength_zero_is_the_identity(perturbation: Any, inputs: Any) -> None:
    nothing = _with_strength(perturbation, 0.0)
    if nothing is None:
        return
    found = perturb(inputs, nothing, seed=7)
    assert not found.hit.any()
    assert all(_same(a, b) for a, b in zip(inputs, _outputs(found), strict=True))


def _less_hits_a_part_of_more(perturbation: Any, inputs: Any, whole: Perturbed) -> None:
    less = _with_strength(perturbation, 0.5)
    if less is not None:
        few = perturb(inputs, less, seed=7)
        assert not (few.hit & ~whole.hit).any()
        for small, large in zip(few.parameters, whole.parameters, strict=True):
            assert small.keys() <= large.keys()


def _refuses_bad_input(perturbation: Any, inputs: Any) -> None:
    images = torch.full((2, 1, 3, 3), 0.5)
    if perturbation.medium == "images":
        bad = [images[0], images * 3, -images, images * float("nan"), images[:0], images.int(), ["text"], None]
    else:
        bad = ["one text", [1, 2], [], None, images]
    for one in bad:
        with pytest.raises(ga.GeoattnError):
            perturb(one, perturbation)
    for seed in (-1, True):
        with pytest.raises(ga.GeoattnError, match="seed"):
            perturb(inputs, perturbation, seed)
    for rows in ([0], np.zeros(len(inputs)), [-1] * len(inputs)):
        with pytest.raises(ga.GeoattnError, match="rows"):
            perturb(inputs, perturbation, rows=rows)
