"""Tokens of models beside the flow: a model that is the flow, padding, causal models, real models, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.sphere_view import sphere_view
from geoattn.dynamics.token_flows import layer_tokens, token_flow


class FlowModel(nn.Module):
    """A transformer that is the layer map itself: normalise(x + h softmax(beta x x^T) x), again and again."""

    def __init__(self, beta: float, h: float, depth: int, causal: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([FlowLayer(beta, h, causal) for _ in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class FlowLayer(nn.Module):
    def __init__(self, beta: float, h: float, causal: bool) -> None:
        super().__init__()
        self.beta, self.h, self.causal = beta, h, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = x[:, None]
        y = nn.functional.scaled_dot_product_attention(q, q, q, scale=self.beta, is_causal=self.causal)
        x = x + self.h * y[:, 0]
        return x / x.norm(dim=-1, keepdim=True)


def captured(model: nn.Module, x: torch.Tensor):
    with ga.capture(model, inputs=True) as record, torch.no_grad():
        model(x)
    return record


@pytest.mark.parametrize("causal", [False, True])
def test_a_model_that_is_the_flow(causal):
    """Short layers of the flow itself: beta is found again, and the flow is near at every layer."""
    x = ga.dynamics.uniform_tokens(12, 8, runs=1, seed=1)
    result = token_flow(captured(FlowModel(3.0, 0.02, 6, causal), x), step=0.02)
    assert result.settings["beta"] == pytest.approx(3.0, abs=1e-6)
    assert result.settings["causal"] is causal
    assert float((result.model.tokens - result.flow.tokens).abs().max()) < 2e-3  # order one in the step
    assert result.distance.max() < 1e-3
    assert (result.distance[1:] < 0.2 * result.stay[1:]).all()
    np.testing.assert_allclose(result.nearest_time, result.t, atol=0.006)
    gap = result.model.curvature["markov"] - result.flow.curvature["markov"]
    assert np.abs(gap).max() < 5e-3  # the same attention, so the same curvature


def test_a_given_beta_and_what_the_result_holds():
    x = ga.dynamics.uniform_tokens(10, 4, runs=2, seed=2)
    record = captured(FlowModel(1.0, 1.0, 5), x)
    result = token_flow(record, 1, beta=2.0, convention=["hop", "markov"], bins=20)
    assert result.settings["beta"] == 2.0
    assert result.model.histogram.shape == result.flow.histogram.shape == (5, 20)
    np.testing.assert_allclose(result.model.histogram.sum(1), 1.0)
    table = result.to_pandas()
    assert len(table) == 5
    assert {"model_curvature_hop", "flow_curvature_markov", "nearest_time"} <= set(table.columns)
    assert result.model.mean_cosine[-1] > result.model.mean_cosine[0]
    torch.testing.assert_close(layer_tokens(record, 1)[0], x[1])


def test_padding_is_left_out():
    model = ga.load_model("bert-tiny", weights="random", vocab_size=50)
    ids = torch.tensor([[3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 0, 0]])
    mask = (ids > 0).long()
    both = ga.profiles.model_flow(model, {"input_ids": ids, "attention_mask": mask}, 1)
    alone = ga.profiles.model_flow(model, {"input_ids": ids[1:, :4]})
    assert both.model.tokens.shape[1] == 4
    torch.testing.assert_close(both.model.tokens, alone.model.tokens, atol=1e-5, rtol=0)
    assert both.settings["beta"] == pytest.approx(alone.settings["beta"], abs=1e-3)


def test_bad_input():
    x = ga.dynamics.uniform_tokens(6, 4, runs=2)
    record = captured(FlowModel(1.0, 1.0, 2), x)
    with pytest.raises(GeoattnError, match="samples 0 to 1; got 2"):
        token_flow(record, 2)
    with pytest.raises(GeoattnError, match="sample must be a whole number"):
        token_flow(record, -1)
    with pytest.raises(GeoattnError, match="step must be"):
        token_flow(record, step=0.0)
    with pytest.raises(GeoattnError, match="fewer than 3"):
        token_flow(captured(FlowModel(1.0, 1.0, 2), x[:, :2]))
    model = FlowModel(1.0, 1.0, 2)
    with ga.capture(model) as plain, torch.no_grad():
        model(x)
    with pytest.raises(GeoattnError, match="inputs=True"):
        token_flow(plain)
    with pytest.raises(GeoattnError, match=r"torch\.nn\.Module"):
        ga.profiles.model_flow("lvit", x)
    with pytest.raises(GeoattnError, match="row from 0 to 0"):
        ga.profiles.model_flow(ga.load_model("lvit-digits"), ga.load_data("digits", limit=1), 3)


def test_sphere_view():
    """Low dimensions are kept; of more, the main axes; one path is seen in the axes of both."""
    flat, three = ga.dynamics.uniform_tokens(5, 2)[None], ga.dynamics.uniform_tokens(5, 3)[None]
    torch.testing.assert_close(sphere_view(flat)[0][0][..., :2], flat)
    torch.testing.assert_close(sphere_view(three)[0][0], three)
    x = torch.zeros(1, 6, 9, dtype=torch.float64)
    x[0, :, 2:5] = ga.dynamics.uniform_tokens(6, 3, seed=4)
    (points, other), held = sphere_view(x, x.flip(1))
    assert held == pytest.approx(1.0)
    torch.testing.assert_close(points @ points.mT, x @ x.mT)  # a rotation
    torch.testing.assert_close(other.flip(1), points)


@pytest.mark.parametrize("d", [2, 3, 7])
def test_films(tmp_path, d, monkeypatch):
    run = ga.simulate(ga.dynamics.uniform_tokens(4, d, runs=2), until=1.0, save=4)
    ga.dynamics.animate(run, tmp_path / "film.gif", run=1, frames=2)
    from PIL import Image, ImageSequence

    with Image.open(tmp_path / "film.gif") as film:
        assert len(list(ImageSequence.Iterator(film))) == 2
    with pytest.raises(GeoattnError, match="run must be below 2"):
        ga.dynamics.animate(run, tmp_path / "film.gif", run=2)
    with pytest.raises(GeoattnError, match="there is no folder"):
        ga.dynamics.animate(run, tmp_path / "none" / "film.gif")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(GeoattnError, match="needs ffmpeg"):
        ga.dynamics.animate(run, tmp_path / "film.mp4")
    last = ga.simulate(ga.dynamics.uniform_tokens(4, d), until=1.0, keep="last")
    with pytest.raises(GeoattnError, match="kept one time only"):
        ga.dynamics.animate(last, tmp_path / "film.gif")


def test_entropy_out_of_reach_gives_an_end_of_the_range():
    """Equal rows can only be had at beta = 0; one-hot rows at none."""
    from geoattn.dynamics.token_flows import _matching_beta

    x = torch.eye(4, dtype=torch.float64)
    assert _matching_beta(x, False, math.log(4)) == 0.0
    assert _matching_beta(x, False, 0.0) == 1e4
    assert _matching_beta(x, False, 1.0) == pytest.approx(2.10, abs=0.5)
