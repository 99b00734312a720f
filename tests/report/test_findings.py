from __future__ import annotations

import dataclasses

import numpy as np

import geoattn as ga
from geoattn.report.findings import doubts, findings, outlying_heads
from geoattn.report.wording import number, percent


def test_sentences_hold_the_numbers_of_the_table(digits):
    depth, trend, extremes, negative = (one.sentence for one in findings(digits, "markov"))
    values = [digits.value("distance_to_one", layer=k)[0] for k in range(8)]
    assert "The last layer is closer to 1" in depth
    assert f"{number(values[0])} in layer 0, {number(values[7])} in layer 7" in depth
    assert "curvature rises with depth" in trend
    assert f"Layer {np.argmin(values)} is the closest to 1, at {number(min(values))}" in extremes
    assert f"layer {np.argmax(values)} the farthest" in extremes
    assert negative.startswith(percent(digits.value("negative_share")[0]))


def test_the_other_convention_says_the_opposite(digits):
    depth, trend = findings(digits, "grc-0.5")[:2]
    assert "The last layer is farther from 1" in depth.sentence
    assert "curvature falls with depth" in trend.sentence


def test_no_negative_edge_is_said_plainly(untrained):
    assert "No edge has negative curvature." in [one.sentence for one in findings(untrained, "markov")]


def test_each_finding_is_tested_by_itself_under_every_convention(digits):
    """By hand, from the table: the sign of depth, the extreme layers, the layer with most negative edges."""
    depth, _, extremes, negative = findings(digits, "markov")
    layers = {
        (c.name, statistic): [digits.value(statistic, layer=k, convention=c.name)[0] for k in range(8)]
        for c in digits.conventions
        for statistic in ("distance_to_one", "negative_share")
    }
    for c in digits.conventions:
        distances, shares = layers[c.name, "distance_to_one"], layers[c.name, "negative_share"]
        if depth.seen[c.name].holds:
            assert distances[7] < distances[0]
        main = layers["markov", "distance_to_one"]
        same = (np.argmin(distances), np.argmax(distances)) == (np.argmin(main), np.argmax(main))
        assert extremes.seen[c.name].holds == same
        worst = int(np.argmax(layers["markov", "negative_share"]))
        assert negative.seen[c.name].holds == (max(shares) > 0 and int(np.argmax(shares)) == worst)
    assert not depth.seen["grc-0.5"].holds
    assert not depth.holds
    assert "not under" in depth.tested
    assert "grc-0.5 (farther, +" in depth.tested


def test_one_convention_is_said_to_be_one(digits):
    alone = dataclasses.replace(digits, conventions=digits.conventions[:1])
    assert {one.tested for one in findings(alone, "markov")} == {"Tested under markov only."}


def test_an_outlying_head_is_found_and_its_place_under_each_convention_is_told():
    model = ga.load_model("bert-tiny", weights="random", num_hidden_layers=4, num_attention_heads=4, vocab_size=50)
    model.encoder.layer[2].attention.self.query.weight.data[32:64] *= 60.0  # one head with sharp attention
    batch = {"input_ids": np_ids()}
    result = ga.profile(model, [batch], resamplings=50, convention=["markov", "hop", "grc-0.6", "grc-0.5"])
    assert outlying_heads(result, "markov")[0][:2] == (2, 1)
    found = findings(result, "markov")[-1]
    assert "Layer 2 head 1 (" in found.sentence
    named = [(2, 1)] if "stands apart" in found.sentence else None
    for name, seen in found.seen.items():
        apart = {(k, h) for k, h, _ in outlying_heads(result, name)}
        if named:
            assert seen.holds == (set(named) <= apart)
        grid = np.array([[result.value("distance_to_one", layer=k, head=h, convention=name)[0] for h in range(4)]
                         for k in range(4)])  # fmt: skip
        away = np.abs(grid - np.median(grid))
        assert f"layer 2 head 1 is number {1 + int((away > away[2, 1]).sum())}" in seen.says


def test_the_box_repeats_only_what_was_tested(digits, untrained):
    from geoattn.report.models import Models
    from geoattn.report.summary import summary

    for profile in (digits, untrained):
        shown = summary(Models.of(profile, None))
        (group,) = shown["said"]
        assert all(row["tested"] for row in group["findings"])
        assert shown["depends"] == any(not row["holds"] for row in group["findings"])
        if shown["depends"]:
            assert "It depends on the convention" in shown["caution"]
        else:
            assert shown["caution"].startswith("Each of these findings holds under all of markov")


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
