"""The study spectral-link: it runs at smoke size, and its verdicts say what its trials say."""

import numpy as np
import pytest

import geoattn as ga
from geoattn.studies.ricci.spectral_link import STUDY, _always
from geoattn.studies.ricci.spectral_trials import attention_of_tokens, trial, value_products
from geoattn.studies.run import run_study


def test_smoke(tmp_path):
    findings = run_study(STUDY, "smoke", tmp_path)
    assert {f.convention for f in findings} == {None, "markov", "grc-0.5", "grc-0.6", "hop"}
    held = {f.claim: f.verdict for f in findings}
    assert (
        held["no eigenvalue passes a bound that is a theorem (contraction, Bauer-Jost-Liu t = 1 to 4)"] == "replicated"
    )
    before = (tmp_path / "spectral-link.csv").read_bytes()
    run_study(STUDY, "smoke", tmp_path)
    assert (tmp_path / "spectral-link.csv").read_bytes() == before
    assert (tmp_path / "spectral-link.png").stat().st_size > 10_000


def test_shared_projections_have_no_negative_eigenvalue():
    for seed in range(20):
        found = trial({"kind": "random", "n": 9, "width": 4, "scale": 2.0, "seed": seed})
        assert found["shared"] > -1e-12
    assert found["apart"] < 0


def test_lemma_follows_the_formula():
    found = trial({"kind": "lemma", "n": 6, "depth": 3, "maps": 3, "seed": 0})
    assert len(found["p"]) == len(found["smallest"]) == 3
    assert all(0 <= p <= 1 for p in found["p"])
    assert found["mu"] > 0


def test_value_products_are_what_a_head_adds():
    model = ga.load_model("lvit-digits", weights="random", heads=2, dim_head=8, depth=1)
    attention = model.transformer.layers[0][0]
    first, second = value_products(model)[0]
    rng = np.random.default_rng(0)
    x = rng.normal(size=attention.to_qkv.in_features)
    values = attention.to_qkv.weight.detach().double().numpy()[-16:] @ x
    expected = attention.to_out[0].weight.detach().double().numpy() @ values
    np.testing.assert_allclose((first + second) @ x, expected, atol=1e-12)


def test_an_inequality_that_fails_once_is_contradicted():
    assert _always("c", "d", [0.1, 0.2]).verdict == "replicated"
    found = _always("c", "d", [0.1, -0.2], "hop")
    assert found.verdict == "contradicted"
    assert (found.low, found.high) == (-0.2, 0.1)
    assert "50.0% of 2" in found.measure


def test_attention_of_tokens_sums_to_one():
    rng = np.random.default_rng(0)
    assert attention_of_tokens(rng.normal(size=(4, 3)), rng.normal(size=(4, 3))).sum(axis=1) == pytest.approx(
        np.ones(4)
    )
