from __future__ import annotations

import dataclasses

import pytest

from geoattn.report.estimates import Estimate
from geoattn.report.models import Models
from geoattn.report.sensitivity import QUESTIONS, Answer, answer, sensitivity, verdict

UP, DOWN, UNCLEAR = Estimate(1.0, 0.5, 1.5), Estimate(-1.0, -1.5, -0.5), Estimate(0.1, -1.0, 1.0)


@pytest.mark.parametrize(
    ("estimates", "changes", "sentence"),
    [
        ({"a": UP, "b": UP}, False, "Both conventions agree: the last layer is farther from 1 than the first."),
        ({"a": DOWN, "b": DOWN, "c": DOWN}, False, "All 3 conventions agree: the last layer is closer to 1"),
        ({"a": UP, "b": DOWN, "c": DOWN}, True, "The sign depends on the convention: under b and c the last layer"),
        ({"a": UP, "b": UNCLEAR}, False, "No convention says the opposite."),
        ({"a": UNCLEAR}, False, "First and last layer do not clearly differ."),
    ],
)  # fmt: skip
def test_verdicts(estimates, changes, sentence):
    found = Answer(QUESTIONS[0], estimates)
    assert found.changes is changes
    assert sentence in verdict(found)


def test_the_sign_of_depth_flips_on_the_embedded_model(digits):
    found = answer(QUESTIONS[0], digits, ("markov", "grc-0.5"))
    assert {name: e.sign for name, e in found.estimates.items()} == {"markov": -1, "grc-0.5": 1}
    section = sensitivity(Models.of(digits, None))
    assert "change sign with the convention." in section.lead[0]
    assert "The sign depends on the convention: under" in section.before


def test_one_convention_has_nothing_to_compare(digits):
    alone = dataclasses.replace(digits, conventions=digits.conventions[:1])
    assert sensitivity(Models.of(alone, None)) is None


def test_a_narrow_distribution_is_called_so(untrained):
    section = sensitivity(Models.of(untrained, None))
    assert any("hardly depends on the attention" in sentence and "grc-0.6" in sentence for sentence in section.lead)
