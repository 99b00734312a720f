from __future__ import annotations

import dataclasses

import numpy as np

import geoattn as ga
from geoattn.report.findings import doubts, findings, outlying_heads
from geoattn.report.wording import number, percent


def test_sentences_hold_the_numbers_of_the_table(digits):
    depth, extremes, negative = findings(digits, "markov")
    values = [digits.value("distance_to_one", layer=k)[0] for k in range(8)]
    assert "The last layer is closer to 1" in depth
    assert f"{number(values[0])} in layer 0, {number(values[7])} in layer 7" in depth
    assert "curvature rises with depth" in depth
    assert f"Layer {np.argmin(values)} is the closest to 1, at {number(min(values))}" in extremes
    assert f"layer {np.argmax(values)} the farthest" in extremes
    assert negative.startswith(percent(digits.value("negative_share")[0]))


def test_the_other_convention_says_the_opposite(digits):
    depth = findings(digits, "grc-0.5")[0]
    assert "The last layer is farther from 1" in depth
    assert "curvature falls with depth" in depth


def test_no_negative_edge_is_said_plainly(untrained):
    assert "No edge has negative curvature." in findings(untrained, "markov")


def test_an_outlying_head_is_found():
    model = ga.load_model("bert-tiny", weights="random", num_hidden_layers=4, num_attention_heads=4, vocab_size=50)
    model.encoder.layer[2].attention.self.query.weight.data[32:64] *= 60.0  # one head with sharp attention
    batch = {"input_ids": np_ids()}
    result = ga.profile(model, [batch], resamplings=50)
    assert outlying_heads(result, "markov")[0][:2] == (2, 1)
    assert "Layer 2 head 1 (" in findings(result, "markov")[-1]


def np_ids():
    import torch

    return torch.from_numpy(np.random.default_rng(0).integers(3, 50, (6, 12)))


def test_doubts_are_told(digits):
    assert doubts(digits) == []
    settings = digits.settings | {
        "samples": 1, "statuses": {"solved": 900, "unreachable": 100}, "edges_in_all": 1000, "values": 900, "edges": 50,
        "skipped": {"cross": 3},
    }  # fmt: skip
    said = doubts(dataclasses.replace(digits, settings=settings))
    assert said[0].startswith("There is one sample only")
    assert said[1].startswith("100 edges of 1,000 (10.0 %): ")
    assert "drawn at random" in said[2]
    assert said[3].startswith("1 attention module not measured")
