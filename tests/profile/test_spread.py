"""Batches seen one by one, elsewhere, and added: the same profile to the last bit."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import geoattn as ga
from geoattn.errors import GeoattnError
from geoattn.profile.batches import read_batch
from geoattn.profile.profile import profile
from geoattn.profile.result import Profile
from geoattn.profile.run import Run
from geoattn.profile.spread import add_part, see_part

MODULE = import_module("geoattn.profile.spread")  # the name leads to a function


def spread_here(run: Run, batches: Any, layers: Any, *, workers: Any, address: Any) -> None:
    """What the cluster does, in this process: each batch is seen apart, in another order than it is added in."""
    del workers, address
    settings = (run.special, [lens.settings for lens in run.lenses], run.others, 1, run.examples.empty())
    items, first, parts = list(batches), 0, []
    for number, item in enumerate(items):
        mine = (*settings[:-1], copy.deepcopy(settings[-1]))
        parts.append(see_part(run.model, layers, mine, item, number, first, {}))
        first += read_batch(item, run.model, number).size
    for number, (item, part) in enumerate(zip(items, parts, strict=True)):
        add_part(run, read_batch(item, run.model, number), part)


def assert_same(one: Profile, two: Profile) -> None:
    pd.testing.assert_frame_equal(one.table, two.table, check_exact=True)
    assert one.resampled.keys() == two.resampled.keys()
    assert all(np.array_equal(one.resampled[key], two.resampled[key]) for key in one.resampled)
    for name in one.histograms:
        assert all(np.array_equal(a, b) for a, b in zip(one.histograms[name], two.histograms[name], strict=True))
    assert len(one.examples) == len(two.examples)
    for a, b in zip(one.examples, two.examples, strict=True):
        assert (a.sample, a.tokens, a.valid, a.grid) == (b.sample, b.tokens, b.valid, b.grid)
        assert all(np.array_equal(x, y) for x, y in zip(a.kappa, b.kappa, strict=True))
    varying = ("seconds", "threads")
    assert {k: v for k, v in one.settings.items() if k not in varying} == {
        k: v for k, v in two.settings.items() if k not in varying
    }


@pytest.mark.parametrize(
    "options", [{"edges": 20, "examples": 3}, {"convention": ["hop", "grc-0.6"], "tokens": "content"}]
)
def test_parts_add_up_to_the_same_bits(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=70)
    monkeypatch.setattr(MODULE, "spread", spread_here)
    assert_same(profile(model, digits, **options), profile(model, digits, backend="ray", **options))


class _Sometimes(nn.Module):
    """Leaves out its first layer when the first token is negative."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.MultiheadAttention(4, 2, batch_first=True)
        self.second = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x[0, 0, 0] >= 0:
            x = self.first(x, x, x, need_weights=False)[0]
        return self.second(x, x, x, need_weights=False)[0]


def test_a_part_knows_when_its_layers_have_other_numbers() -> None:
    from geoattn.profile.spread import _same_numbers

    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    model = _Sometimes().eval()
    seen: dict[str, Any] = {}

    def stop(run: Run, batches: Any, layers: Any, **_: Any) -> None:
        settings = (run.special, [lens.settings for lens in run.lenses], run.others, 1, run.examples.empty())
        negative = see_part(model, layers, settings, -x.abs(), 0, 0, {})
        whole = see_part(model, layers, settings, x.abs(), 1, 2, {})
        run.layers = {("first", 0): 0, ("second", 0): 1}
        seen["whole"], seen["negative"] = _same_numbers(run, whole), _same_numbers(run, negative)
        known = see_part(model, layers, settings, -x.abs(), 1, 2, dict(run.layers))
        seen["known"] = _same_numbers(run, known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "spread", stop)
        with pytest.raises(GeoattnError, match="batches were empty"):
            profile(model, [x], backend="ray")
    assert seen == {"whole": True, "negative": False, "known": True}


_ON_RAY = """
import sys, numpy as np, geoattn as ga
model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=70)
for backend in ("local", "ray"):
    ga.profile(model, digits, edges=20, backend=backend, workers=2, threads=1).save(f"{sys.argv[1]}/{backend}.npz")
"""


@pytest.mark.timeout(600)
def test_on_a_cluster_of_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _ON_RAY, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert_same(Profile.load(tmp_path / "local.npz"), Profile.load(tmp_path / "ray.npz"))


def test_bad_values() -> None:
    model = ga.load_model("lvit-digits")
    digits = ga.load_data("digits", split="test", limit=2)
    with pytest.raises(GeoattnError, match="backend must be local or ray"):
        profile(model, digits, backend="moon")  # pyright: ignore[reportArgumentType]
