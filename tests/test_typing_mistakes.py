"""A name that is nearly right is answered with the nearest one, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import geoattn as ga


@pytest.fixture(scope="module")
def record() -> ga.attention.Record:
    """The calls of two modules, of which the second runs twice."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.MultiheadAttention(8, 2, batch_first=True)
            self.second = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x, x, x)[0]
            return self.second(x, x, x)[0] + self.second(x, x, x)[0]

    model = Two()
    with ga.capture(model) as found, torch.no_grad():
        model(torch.rand(1, 5, 8))
    return found


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "convention": (lambda: ga.Convention.of("Markov"), "markov"),
    "model": (lambda: ga.load_model("lvit-digit"), "lvit-digits"),
    "data set": (lambda: ga.load_data("fashion_mnist"), "fashion-mnist"),
    "study": (lambda: ga.studies.find_study("tabel1"), "table1"),
    "regulariser": (lambda: ga.training.Recipe("digits", regularisers=(("varianc", {}),)), "variance"),
    "lens": (lambda: ga.profile(nn.Identity(), [torch.rand(1, 1)], lenses="spectrums"), "spectrum"),
    "flow": (lambda: ga.simulate(np.eye(2), flow="sinkhorm"), "sinkhorn"),
    "method": (lambda: ga.simulate(np.eye(2), method="rk-4"), "rk4"),
    "layers": (lambda: ga.capture(ga.models.LViT(), layers="transformer.layer.0").__enter__(), "transformer.layers.0"),
    "bound": (lambda: ga.lipschitz_bounds(-np.eye(2), None, n=3, R=1.0)["discrete uper"], "discrete upper"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_the_nearest_name_is_named(kind: str) -> None:
    call, nearest = MISTAKES[kind]
    with pytest.raises(ga.GeoattnError, match=f"Did you mean '{nearest}'"):
        call()


def test_a_name_that_is_near_to_none_gets_no_guess() -> None:
    with pytest.raises(ga.GeoattnError) as caught:
        ga.Convention.of("sphere")
    assert "Did you mean" not in str(caught.value)


def test_a_record_by_the_name_of_a_module(record: ga.attention.Record) -> None:
    assert record["first"] is record[0]
    with pytest.raises(ga.GeoattnError, match=r"no attention of 'frist' is in this record.* Did you mean 'first'\?"):
        record["frist"]
    with pytest.raises(ga.GeoattnError, match=r"'second' ran 2 times.*record.select\('second'\)"):
        record["second"]
    assert len(record.select("second")) == 2


@pytest.mark.parametrize("flow", ["usa", "Usa", "USA", "l2", "SINKHORN"])
def test_the_case_of_a_flow_does_not_matter(flow: str) -> None:
    upper = {"usa": "USA", "l2": "L2", "sinkhorn": "sinkhorn"}[flow.lower()]
    start = np.eye(3)
    run, same = (ga.simulate(start, flow=name, until=0.1) for name in (flow, upper))
    assert run.settings["flow"] == upper
    assert torch.equal(run.final, same.final)


def test_a_module_around_the_attention_is_answered_with_the_attention() -> None:
    """The name that is offered is one that the record takes."""
    model = ga.load_model("bert-tiny", weights="random", vocab_size=20)
    with ga.capture(model) as found, torch.no_grad():
        model(torch.ones(1, 4, dtype=torch.long))
    for name in ("encoder.layer.1.attention", "encoder.layer.1.atention"):
        with pytest.raises(ga.GeoattnError, match=r"Did you mean 'encoder\.layer\.1\.attention\.self'\?"):
            found[name]
    assert found["encoder.layer.1.attention.self"] is found[1]


def test_a_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match=r"geoattn has no name 'olivier_ricci'\. Did you mean 'ollivier_ricci'\?"):
        ga.olivier_ricci  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(ga, "nothing_like_it")
