"""The lens of the flow: one for heads that are gradient flows, the numbers of `gradient_share`, and the report."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.profiles.batches import read_batch
from geoattn.profiles.lenses.gradient_flow import STATISTICS, head_flow, head_shares
from geoattn.profiles.model_constants import SmoothnessPass
from geoattn.profiles.result import Profile
from geoattn.report.gradient_flow import gradient_flow
from geoattn.report.models import Models


def projections(model: torch.nn.Module, images: torch.Tensor) -> dict[int, object]:
    return dict(SmoothnessPass(model).projections(read_batch(images, model, 0)))


def small(heads: int) -> LViT:
    torch.manual_seed(0)
    return LViT(LViTConfig(image_size=8, patch_size=4, dim=8, depth=1, heads=heads, dim_head=8, mlp_dim=8))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_head_that_is_a_gradient_flow(sign):
    """Queries equal to keys and values +-Q^T Q x: D is symmetric and V is a multiple of it."""
    model, images = small(1), torch.rand(2, 1, 8, 8)
    weight = next(p for name, p in model.named_parameters() if "to_qkv" in name)
    Q = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    weight.data = torch.cat([Q, Q, sign * Q.T @ Q])
    (p,) = projections(model, images).values()
    found = head_shares(p, 1, 0)
    assert found["gradient_share"] == pytest.approx(1.0, abs=1e-10)
    assert found["metric_share"] == pytest.approx(1.0, abs=1e-10)
    assert found["explained"] == pytest.approx(1.0, abs=1e-10)
    assert found["symmetry"] == pytest.approx(1.0, abs=1e-10)
    assert found["alignment"] == pytest.approx(sign, abs=1e-10)


def test_the_flow_of_a_head_has_its_logits_and_values():
    """At tokens of one norm x D x are the logits and V x the values through the output projection."""
    model, images = small(2), torch.rand(1, 1, 8, 8)
    (p,) = projections(model, images).values()
    for head in range(2):
        x, D, V = head_flow(p, 0, head)
        radius = p.tokens[0].norm(dim=-1).square().mean().sqrt()
        scale = p.tokens[0].norm(dim=-1) / radius
        logits = (x @ D @ x.T) * scale[:, None] * scale[None, :]
        np.testing.assert_allclose(logits, p.q[0, head] @ p.k[0, head].T, atol=1e-12)
        written = p.v[0, head] @ p.output[head].T
        np.testing.assert_allclose((x @ V.T) * scale[:, None], written, atol=1e-12)


@pytest.fixture(scope="module")
def profile() -> Profile:
    rows = ga.load_data("digits", split="test", limit=3)
    model = ga.load_model("lvit-digits")
    return ga.profile(model, rows, convention="hop", lenses=["gradient_flow"], resamplings=50, smoothness_samples=2)


def test_the_profile_has_the_numbers_of_each_head(profile):
    model, rows = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    found = projections(model, rows.pixels())
    shares = [head_shares(found[3], sample, 0) for sample in range(2)]
    for name in STATISTICS:
        value, low, high = profile.value(name, layer=3, lens="gradient_flow")
        assert value == pytest.approx(np.mean([s[name] for s in shares]), abs=1e-9)
        assert low <= value <= high


def test_the_report_shows_them(profile):
    section = gradient_flow(Models.of(profile, None))
    assert section is not None
    assert [f.name for f in section.figures] == ["layers", "cloud"]  # one head a layer: no map
    assert len(section.figures[1].variants["0"]["data"][0]["x"]) == 8
    assert "Median gradient share of the 8 heads" in section.lead[1]
    rows = ga.load_data("digits", split="test", limit=1)
    other = ga.profile(ga.load_model("lvit-digits"), rows, convention="hop", lenses=["weights"], resamplings=20)
    assert gradient_flow(Models.of(other, None)) is None


def test_heads_without_an_output_projection():
    """Two heads side by side write to another space than they read: no V, and the profile says so."""
    layer = torch.nn.Linear(8, 24, bias=False)

    class Side(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    model, batch = Side(), torch.rand(1, 5, 8)
    (p,) = projections(model, batch).values()
    with pytest.raises(GeoattnError, match="no square matrix"):
        head_flow(p, 0, 0)
    found = ga.profile(model, [batch], convention="hop", lenses=["gradient_flow"], resamplings=20)
    assert np.isnan(found.value("gradient_share", layer=0, lens="gradient_flow")[0])
    assert any("no square matrix" in note for note in found.settings["notes"])
