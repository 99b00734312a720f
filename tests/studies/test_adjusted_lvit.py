"""One trial of the studies at the paper's size, on a few digits."""

from __future__ import annotations

import json

import pytest

from geoattn.studies.ricci import adjusted_lvit
from geoattn.studies.ricci.adjusted_lvit import PERTURBATIONS, STEP, trial

CONFIG = {"data": "digits", "seed": 1, "direction": "none", "epochs": 1, "limit": 96, "test_limit": 60}


def test_the_draw_moves_the_perturbed_rows_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjusted_lvit, "_PERTURBED", 30)
    first, same, drawn, again = (trial({**CONFIG, **more}) for more in ({}, {}, {"draw": 5}, {"draw": 5}))
    assert json.dumps(first) == json.dumps(same)
    assert json.dumps(drawn) == json.dumps(again)
    assert first["step"] == STEP
    assert set(first["perturbed"]) == set(PERTURBATIONS)
    assert first["perturbed"] != drawn["perturbed"]
    assert {k: v for k, v in first.items() if k != "perturbed"} == {k: v for k, v in drawn.items() if k != "perturbed"}
