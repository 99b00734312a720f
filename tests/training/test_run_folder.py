"""The folder of a training run: one process at a time, and files from strangers."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoattn._core.errors import GeoattnError
from geoattn.training.loop import train
from geoattn.training.recipe import Recipe
from geoattn.training.run_folder import alone_in, read_run

SMALL = Recipe("digits", epochs=1, limit=8, test_limit=8, batch=8, changes={"depth": 1, "dim": 8, "mlp_dim": 8})


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with alone_in(tmp_path / "run"), pytest.raises(GeoattnError, match="another process trains in"):
        train(SMALL, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []
    train(SMALL, tmp_path / "run")
    train(SMALL, tmp_path / "run")  # the lock went with the first
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "checkpoint.safetensors",
        "log.jsonl",
        "recipe.json",
    ]


@pytest.mark.parametrize("recipe", ["[" * 10_000, "nothing", "[]", ""])
def test_a_recipe_from_a_stranger(tmp_path: Path, recipe: str) -> None:
    (tmp_path / "recipe.json").write_text(recipe)
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    with pytest.raises(GeoattnError) as raised:
        read_run(tmp_path)
    assert "\n" not in str(raised.value)
