"""Batches seen one by one, elsewhere, and added: the same profile to the last bit."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.profiles.profiling import profile
from geoattn.profiles.result import Profile


class _LostError(Exception):
    """What Ray raises when a node died."""


class PlainRay:
    """The few calls of Ray that are used, without processes; tasks run when they are asked for, through a pickle."""

    exceptions = SimpleNamespace(RayError=_LostError, RayTaskError=KeyError)

    def __init__(self) -> None:
        self.tasks = 0
        self._kept: list[bytes] = []

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, value: Any) -> Any:
        self._kept.append(pickle.dumps(value))
        name = f"{id(self)} {len(self._kept)}"
        return SimpleNamespace(hex=lambda: name, number=len(self._kept) - 1)

    def remote(self, **_: Any) -> Any:
        return lambda function: SimpleNamespace(remote=lambda *arguments: (function, arguments))

    def get(self, reference: Any) -> Any:
        if isinstance(reference, tuple):
            self.tasks += 1
            function, arguments = reference
            return pickle.loads(pickle.dumps(function(*arguments)))
        return pickle.loads(self._kept[reference.number])


@pytest.fixture
def plain_ray(monkeypatch: pytest.MonkeyPatch) -> PlainRay:
    ray = PlainRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


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
def test_parts_add_up_to_the_same_bits(plain_ray: PlainRay, options: dict[str, Any]) -> None:
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=70)
    seen: list[float] = []
    spread = profile(model, digits, backend="ray", progress=lambda done, _: seen.append(done), **options)
    assert_same(profile(model, digits, **options), spread)
    assert (plain_ray.tasks, seen) == (3, [32, 64, 70])


class _Sometimes(nn.Module):
    """Leaves out its first layer when the first token is negative."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.MultiheadAttention(4, 2, batch_first=True)
        self.second = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor, input_ids: torch.Tensor | None = None) -> torch.Tensor:
        if x[0, 0, 0] >= 0:
            x = self.first(x, x, x, need_weights=False)[0]
        return self.second(x, x, x, need_weights=False)[0]


def test_a_batch_whose_layers_have_other_numbers_is_seen_again(plain_ray: PlainRay) -> None:
    x = torch.randn(3, 2, 9, 4, generator=torch.Generator().manual_seed(0)).abs()
    batches, model = [x[0], -x[1], x[2]], _Sometimes().eval()
    here = profile(model, batches, edges=5)  # drawn by layer, so that a wrong number would show
    assert_same(here, profile(model, batches, edges=5, backend="ray"))
    assert plain_ray.tasks == 4
    assert here.layers == ("first", "second")


def test_what_goes_wrong_on_a_node_is_told(plain_ray: PlainRay, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ga.load_model("lvit-digits")
    with pytest.raises(GeoattnError, match="batches were empty"):
        profile(model, [], backend="ray")
    with pytest.raises(GeoattnError, match="special tokens of this text model"):
        profile(_Sometimes(), [{"x": torch.rand(1, 5, 4), "input_ids": torch.ones(1, 5, dtype=torch.long)}],
                tokens="content", backend="ray")  # fmt: skip

    def lost(_: Any) -> Any:
        raise _LostError("The node died.")

    monkeypatch.setattr(plain_ray, "get", lost)
    with pytest.raises(GeoattnError, match=r"a batch was lost 6 times: The node died\."):
        profile(model, [torch.rand(1, 1, 28, 28)], backend="ray")


_ON_RAY = """
import sys, numpy as np, geoattn as ga
model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=70)
for backend in ("local", "ray"):
    ga.profile(model, digits, edges=20, backend=backend, workers=2, threads=1).save(f"{sys.argv[1]}/{backend}.npz")
"""


@pytest.mark.slow
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
