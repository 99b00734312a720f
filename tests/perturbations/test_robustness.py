"""A model under many perturbations, on the embedded model and data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.datasets.feed import feed
from geoattn.perturbations import Combined, perturb, perturb_dataset
from geoattn.perturbations.classifier_accuracy import accuracy, accuracy_drop
from geoattn.perturbations.images import Blur, Flip, Perspective, Rotation
from geoattn.perturbations.paper import image_perturbations, text_perturbations
from geoattn.perturbations.robustness_table import robustness
from tests.perturbations.test_accuracy import LongWords, Words

KINDS = (Flip(0.2), Flip(0.4), Rotation(0.4), Perspective(0.5))


@pytest.fixture(scope="module")
def digits():
    return ga.load_data("digits", split="test")


@pytest.fixture(scope="module")
def model():
    return ga.load_model("lvit-digits")


@pytest.fixture(scope="module")
def result(model, digits):
    return robustness(model, digits, KINDS, seed=0)


def test_the_table_is_what_accuracy_says(result, model, digits):
    table = result.to_pandas()
    assert list(table.perturbation) == ["flip 0.2", "flip 0.4", "rotation 0.4", "perspective 0.5"]
    for kind, row in zip(KINDS, table.itertuples(), strict=True):
        moved, record = perturb_dataset(digits, kind, 0)
        assert row.perturbed == pytest.approx(accuracy(model, moved))
        assert row.rho == pytest.approx(accuracy(model, digits) - accuracy(model, moved))
        assert row.low < row.rho < row.high
        assert row.hit == record.hit.mean()
        assert row.changed == record.changed.mean()
    again = accuracy_drop(result.predicted_clean == digits.labels, result.predicted[1] == digits.labels)
    assert again == result["flip 0.4"]


def test_more_of_the_same_hurts_more_and_untouched_samples_keep_their_prediction(result, digits):
    assert 0 < result["flip 0.2"].rho < result["flip 0.4"].rho
    for k, kind in enumerate(KINDS):
        hit = perturb(digits.pixels(), kind, 0, rows=digits.rows).hit
        np.testing.assert_array_equal(result.predicted[k][~hit], result.predicted_clean[~hit])


def test_examples_are_the_first_that_were_hit(result, digits):
    chosen = [e for e in result.examples if e.perturbation == "flip 0.4"]
    record = perturb(digits.pixels(), Flip(0.4), 0, rows=digits.rows)
    assert [e.row for e in chosen] == np.flatnonzero(record.hit)[:8].tolist()
    for example in chosen:
        np.testing.assert_array_equal(example.clean, digits.pixels()[example.row].numpy())
        np.testing.assert_array_equal(example.perturbed, example.clean[..., ::-1])
        assert example.label == str(digits.labels[example.row])
        assert example.predicted_perturbed == str(result.predicted[1][example.row])
        assert example.parameters == {"flip": {"direction": "horizontal"}}


def test_the_same_again_and_nothing_at_all(model, digits):
    part = digits.subset(range(40))
    one, two = (robustness(model, part, [Rotation(0.4)], seed=3) for _ in range(2))
    assert one.drops == two.drops
    nothing = robustness(model, part, [Blur(0.0)])
    assert nothing["blur 0"].rho == 0
    assert nothing["blur 0"].method == "exact, all samples agree"
    assert nothing.examples == ()


def test_texts():
    texts = ("tiny words so far", "gigantic thing", "a b c d e f", "is it enormous", "no") * 8
    labels = np.array([0, 1, 0, 1, 0] * 8)
    data = ga.datasets.Dataset("toy", "test", "here", ("short", "long"), labels, np.arange(40), "", texts=texts)
    seen = []
    result = robustness(
        LongWords(), data, text_perturbations(("a", "wonderful")), Words(), progress=lambda *k: seen.append(k)
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert result["word swap 0.4"].rho == 0
    assert result["character substitution 0.2"].rho == 0
    assert result["word substitution 0.2"].rho > 0.1
    example = next(e for e in result.examples if e.perturbation == "word substitution 0.2")
    assert isinstance(example.clean, str)
    assert example.clean != example.perturbed
    assert result["characters + words 0.2"].rho == result["word substitution 0.2"].rho


def test_a_perturbed_data_set_is_fed_like_any_other(model, digits):
    """Profiles and reports take it through `feed`."""
    moved, record = perturb_dataset(digits.subset(range(70)), Rotation(1.0))
    assert torch.equal(torch.cat(list(feed(moved, model))), record.images)


def test_the_perturbations_of_the_paper():
    names = [p.name for p in image_perturbations()]
    assert len(names) == len(set(names)) == 11
    assert {"flip 0.2", "blur 0.4", "rotation 0.4", "elastic alpha=75", "perspective 0.5"} <= set(names)
    small = {p.name: p for p in image_perturbations(8)}
    assert small["elastic alpha=6.122"].sigma == pytest.approx(40 / 28)
    assert small["blur 0.2"].sigma == pytest.approx((0.1 * 8 / 28, 2 * 8 / 28))
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for kind in small.values():
        assert perturb(images, kind).images.shape == images.shape


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([], "perturbations are empty"),
        ([Flip(0.2), Flip(0.2, "vertical")], "twice: flip 0.2"),
        ([Combined((Flip(0.2),), "flip 0.3"), "flip"], "expected a perturbation"),
    ],
)
def test_bad_input(kinds, words, model, digits):
    with pytest.raises(ga.GeoattnError, match=words):
        robustness(model, digits.subset(range(4)), kinds)


def test_an_unknown_name(result):
    with pytest.raises(ga.GeoattnError, match=r"no perturbation 'blur'; there are flip 0\.2"):
        result["blur"]
