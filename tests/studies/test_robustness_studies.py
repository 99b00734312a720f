"""The studies of robustness and forgetting at their smallest, and their verdicts on results made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.runs.store import Store
from geoattn.studies.catalogue import find_study
from geoattn.studies.engine.cells import by, judge_association, judge_with_trimmed, matched
from geoattn.studies.engine.layer_curvature import BINS, PRESETS, describe
from geoattn.studies.engine.tasks import load_task
from geoattn.studies.run import run_study

NAMES = ("fig8", "fig6", "fig13", "fig14", "fig11", "fig12", "appendix-c", "section-5-1")
SOURCES = {"fig6": "fig8", "fig14": "fig13"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, each trial done once."""
    folder = tmp_path_factory.mktemp("studies")
    for name in NAMES:
        reuse = [folder / SOURCES[name]] if name in SOURCES else []
        run_study(find_study(name), "smoke", folder / name, reuse=reuse)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_smoke_gives_table_figure_and_findings(smoke: Path, name: str) -> None:
    study, folder = find_study(name), smoke / name
    findings = json.loads((folder / f"{name}.json").read_text())["findings"]
    assert findings
    assert {f["verdict"] for f in findings} <= {"replicated", "not replicated", "contradicted"}
    conventions = {f["convention"] for f in findings} - {None}
    assert conventions == (set(PRESETS) if name != "fig13" else set())
    assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    # the table again from what is stored, to the ten digits that a table has
    configs = study.configs("smoke")
    store = Store(folder, study.name, study.version)
    pairs = [(config, store.read(config)) for config in configs]
    again = study.table(pairs).to_csv(index=False, lineterminator="\n", float_format="%.10g").encode()
    assert again == (folder / f"{name}.csv").read_bytes()
    assert study.paper == "ricci"
    assert study.place
    assert study.how


def test_trials_are_pure_functions(smoke: Path) -> None:
    """One of each kind, done once more: equal to the last bit."""
    from geoattn.runs.local import find_trial

    for name in ("fig8", "fig13", "fig11", "appendix-c"):
        study = find_study(name)
        config = study.configs("smoke")[-1]
        stored = Store(smoke / name, name, study.version).read(config)
        assert json.loads(json.dumps(find_trial(study.trial)(config))) == stored


def test_numbers_hang_together(smoke: Path) -> None:
    study = find_study("fig8")
    store = Store(smoke / "fig8", "fig8", study.version)
    for config in study.configs("smoke"):
        result = store.read(config)
        for layer in ("first", "last"):
            for preset in PRESETS:
                numbers = result["curvature"][layer][preset]
                assert sum(numbers["histogram"]) == numbers["values"] > 0
                assert numbers["distance_to_one"] == pytest.approx(1 - numbers["mean"])  # kappa is at most 1
                assert 0 <= numbers["zero_share"] + numbers["outlier_share"] < 1
        assert -1 <= result["rho"]["FGSM"] <= 1
    table = pd.read_csv(smoke / "fig8/fig8.csv")
    assert len(table) == 2 * 2 * 2 * 4  # data sets, models of each, layers, presets


@pytest.mark.parametrize("name", NAMES)
def test_sizes_ask_for_what_the_issue_asks(name: str) -> None:
    small, paper = find_study(name).configs("small"), find_study(name).configs("paper")
    for configs in (small, paper):
        assert len({json.dumps(c, sort_keys=True) for c in configs}) == len(configs)
    if name in ("appendix-c", "section-5-1"):
        return
    data = "data" if "data" in small[0] else "first"
    for (task,), cell in by([(c, None) for c in small], data).items():
        seeds = {c["seed"] for c, _ in cell}
        assert len(seeds) >= (10 if task.startswith("digits") else 3)
    if name in ("fig13", "fig14"):
        rates = {task: {c["mask"] for c in small if c["data"] == task} for task in ("digits", "fashion-mnist", "sst2")}
        assert rates["digits"] == {k / 10 for k in range(10)}
        assert rates["fashion-mnist"] == rates["sst2"] == {0.0, 0.2, 0.5, 0.8}
    if name == "fig11":
        pairs = {(c["first"], c["second"]) for c in small}
        assert {(b, a) for a, b in pairs} == pairs
        assert len({(c["first"], c["second"]) for c in paper}) == 6
    assert {c["samples"] for c in paper} == {1024}


def _masked(mask: float, seed: int, rho: float, negative: float, spread: float, zeros: float = 0.0) -> Any:
    numbers = {
        "distance_to_one": rho, "negative_share": negative, "std": spread,
        "trimmed_negative_share": negative - zeros, "trimmed_std": spread, "dip": 0.1 * spread, "dip_p": 0.5,
    }  # fmt: skip
    result = {
        "test_accuracy": 0.9 - 0.01 * mask, "rho": {"FGSM": rho, "elastic + perspective": rho},
        "curvature": {"last": dict.fromkeys(PRESETS, numbers)},
    }  # fmt: skip
    return {"data": "digits", "model": "lvit-digits", "mask": mask, "seed": seed}, result


def test_masking_verdicts_follow_the_numbers() -> None:
    rng = np.random.default_rng(0)
    helps = [
        _masked(mask, seed, 0.4 - 0.2 * mask + 0.01 * rng.random(), 0.3 - 0.3 * mask, 0.5 - 0.4 * mask + 0.01 * seed)
        for mask in (0.0, 0.2, 0.5, 0.8)
        for seed in range(5)
    ]
    for name in ("fig13", "fig14"):
        assert {f.verdict for f in find_study(name).verdict(helps)} == {"replicated"}
    harms = [(c, _masked(c["mask"], c["seed"], 0.2 + 0.1 * c["mask"], 0.1 * c["mask"], 0.2)[1]) for c, _ in helps]
    assert [f.verdict for f in find_study("fig13").verdict(harms)] == ["contradicted", "contradicted", "replicated"]
    found = {f.claim: f.verdict for f in find_study("fig14").verdict(harms)}
    assert found["negative curvature values diminish at higher masking rates"] == "contradicted"
    assert found["curvature values converge to a common modal value"] == "not replicated"


def test_rho_is_that_of_the_paper_whatever_the_order_of_the_keys() -> None:
    """Stored results have sorted keys, FGSM first."""
    pairs = []
    for model, rho in (("vit-b16", 0.1), ("deit-b16", 0.3)):
        for seed in range(4):
            numbers = {"distance_to_one": 0.01 * seed + rho, "trimmed_distance_to_one": 0.01 * seed + rho}
            curvature = {"last": {preset: numbers for preset in PRESETS}}
            drops = {"FGSM": 0.9 - rho - 0.01 * seed, "flip + blur + rotation 0.4": rho + 0.01 * seed}
            pairs.append(({"data": "digits", "model": model, "seed": seed}, {"rho": drops, "curvature": curvature}))
    findings = find_study("fig6").verdict(pairs)
    assert findings[0].measure == "rho (flip + blur + rotation 0.4), DeiT minus ViT"
    assert findings[0].difference == pytest.approx(0.2)
    linked = {f.measure.split("rho (")[1].split(")")[0]: f for f in findings if "rank" in f.measure}
    assert linked["perturbed"].difference > 0 > linked["FGSM"].difference


def test_forgetting_verdict_follows_the_areas() -> None:
    def pair(model: str, seed: int, area: float, distance: float) -> Any:
        config = {"first": "digits", "second": "digits-turned", "model": model, "seed": seed}
        curvature = {"last": {key: {"distance_to_one": distance} for key in PRESETS}}
        return config, {"area": area, "curvature": curvature}

    more = [pair("deit-b16", s, 0.3 + 0.01 * s, 0.6 + 0.001 * s) for s in range(4)]
    less = [pair("vit-b16", s, 0.1 + 0.01 * s, 0.5 + 0.001 * s) for s in range(4)]
    assert {f.verdict for f in find_study("fig11").verdict(more + less)} == {"replicated"}
    swapped = [pair("vit-b16", s, 0.3 - 0.01 * s, 0.5 + 0.001 * s) for s in range(4)]
    swapped += [pair("deit-b16", s, 0.1 - 0.01 * s, 0.6 + 0.001 * s) for s in range(4)]
    assert {f.verdict for f in find_study("fig11").verdict(swapped)} == {"contradicted"}
    with pytest.raises(GeoattnError, match="seed by seed"):
        find_study("fig11").verdict(more + less[:-1])
    nothing = [pair(c["model"], c["seed"], 0.001, 0.5) for c, _ in more + less]
    assert "hardly anything is forgotten" in find_study("fig11").verdict(nothing)[0].measure


def test_a_verdict_that_trimming_turns_is_shown_twice() -> None:
    numbers = {"": np.array([-0.2, -0.21, -0.19]), "trimmed_": np.array([0.2, 0.21, 0.19])}
    found = judge_with_trimmed("it rises", "digits", numbers.__getitem__, "hop", "mean")
    assert [f.verdict for f in found] == ["contradicted", "replicated"]
    assert found[1].measure == "mean; zeros and outliers left out"
    same = judge_with_trimmed("it rises", "digits", lambda _: numbers[""], "hop", "mean")
    assert len(same) == 1


def test_association_goes_by_ranks_within_groups() -> None:
    x, groups = np.arange(12.0) % 6, ["a"] * 6 + ["b"] * 6
    y = x + np.repeat([100.0, 0.0], 6)  # pooled without groups it would be far weaker
    options: dict[str, Any] = {"convention": "hop", "measure": "", "seeds": np.arange(12) % 6}
    assert judge_association("", "", x, y, groups, **options).difference == pytest.approx(1)
    assert judge_association("", "", x, -y, groups, **options).verdict == "contradicted"
    assert judge_association("", "", x, np.ones(12), groups, **options).verdict == "not replicated"
    assert judge_association("", "", x[:2], y[:2], ["a", "b"], **{**options, "seeds": [0, 1]}).trials == 0


def test_description_of_a_distribution_with_two_modes() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0.2, 0.02, 600), rng.normal(0.8, 0.02, 600), np.zeros(100), [-3.0]])
    numbers = describe(np.minimum(values, 1), rng.integers(0, 60, len(values)))
    assert numbers["dip_p"] < 0.05
    assert numbers["zero_share"] == pytest.approx(100 / 1301)
    assert numbers["trimmed_negative_share"] == 0 < numbers["negative_share"]
    assert numbers["histogram"][0] == 1  # what lies below the bins counts in the first
    assert len(numbers["histogram"]) == len(BINS) - 1
    flat = describe(np.full(50, 0.5), np.arange(50) % 5)
    assert flat["dip"] is None
    assert json.dumps(flat, allow_nan=False)


def test_pairs_must_match() -> None:
    one, two = ({"seed": 0}, {"x": 1.0}), ({"seed": 1}, {"x": 3.0})
    assert matched([two, one], [one, two], lambda r: r["x"]).tolist() == [0.0, 0.0]
    with pytest.raises(GeoattnError, match="one side has"):
        matched([one], [two], lambda r: r["x"])


def test_tasks() -> None:
    plain, turned, dark = (load_task(name, "test", 5) for name in ("digits", "digits-turned", "digits-inverted"))
    assert plain.images is not None
    assert turned.images is not None
    assert dark.images is not None
    np.testing.assert_array_equal(np.rot90(turned.images, -1, axes=(2, 3)), plain.images)
    np.testing.assert_array_equal(plain.images + dark.images, 16)
    texts = load_task("made-up-mood", "train", 50)
    assert texts.texts is not None
    good = [any(w in t.split() for w in ("good", "warm", "lovely")) for t in texts.texts]
    np.testing.assert_array_equal(good, texts.labels == 1)
    assert load_task("made-up-mood", "test", 50).texts != texts.texts
