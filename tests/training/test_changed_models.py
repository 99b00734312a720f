"""Regularisers, interventions and the fused step on models that are changed: frozen, compiled, with other layers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.models.fused_step import with_fused_step
from geoattn.models.lvit import FeedForward, LViT, LViTConfig
from geoattn.models.quick_dropout import QuickDropout, with_quick_dropout
from geoattn.training import AttentionDropout, EdgeMask, LipschitzRegulariser, Recipe, VarianceRegulariser, train
from geoattn.training.monitor import Monitor
from tests.training.small_models import bert, lvit

IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_frozen_embeddings_leave_the_layers_above_them() -> None:
    """The tokens of the first layer have no gradient then; those of the second have."""
    model = bert("sdpa").train()
    for parameter in model.bert.embeddings.parameters():
        parameter.requires_grad_(False)
    with LipschitzRegulariser(heads=1).attach(model) as handle:
        for _ in range(6):
            model(input_ids=torch.arange(6)[None])
            handle.penalty().backward()
    first, second = model.bert.encoder.layer
    assert any(p.grad is not None and bool(p.grad.any()) for p in first.parameters())
    assert any(p.grad is not None and bool(p.grad.any()) for p in second.parameters())


def test_tokens_without_any_gradient_are_said_once() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 16, 0.0, batch_first=True), 1).train()
    with LipschitzRegulariser(heads=1).attach(model) as handle:
        model(torch.rand(2, 5, 16))
        with pytest.warns(GeoattnWarning, match="no attention layer have a gradient"):
            assert float(handle.penalty()) == 0.0
        model(torch.rand(2, 5, 16))
        assert float(handle.penalty()) == 0.0  # a warning would be an error here


@pytest.mark.parametrize("intervention", [EdgeMask(0.5), AttentionDropout(0.5)])
def test_interventions_on_a_compiled_model(intervention: Any) -> None:
    torch._dynamo.reset()
    model = lvit().train()
    compiled = torch.compile(model, backend="eager")
    torch.manual_seed(1)
    plain = compiled(IMAGES)
    with intervention.attach(compiled):
        torch.manual_seed(1)
        changed = compiled(IMAGES)
    assert not torch.allclose(plain, changed)


@pytest.mark.parametrize("kind", ["variance", "curvature", "monitor"])
def test_a_loss_that_is_not_finite_names_its_layer(kind: str, tmp_path: Any) -> None:
    chosen = [] if kind == "monitor" else [(kind, {})]
    recipe = Recipe(
        "digits", epochs=1, rate=1e30, limit=128, test_limit=20, regularisers=chosen,
        monitor_every=1 if kind == "monitor" else None,
    )  # fmt: skip
    with pytest.raises(GeoattnError, match=r"the loss is \S+ at epoch 1, step \d+: .* layer"):
        train(recipe, tmp_path / "run")


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_a_monitor_goes_on_where_attention_is_not_finite() -> None:
    model = lvit().train()
    with Monitor(every=1).attach(model) as handle:
        model(torch.full((2, 1, 8, 8), float("nan"))).sum().backward()
        figures = handle.figures()
    assert figures["curvature"] != figures["curvature"]


def test_samples_of_every_kind_follow_the_seed_of_the_recipe() -> None:
    built = Recipe("digits", seed=7, regularisers=[("curvature", {}), ("lipschitz", {}), ("variance", {})]).build()
    assert [getattr(one, "seed", None) for one in built] == [7, 7, None]


def block() -> FeedForward:
    torch.manual_seed(0)
    return LViT(LViTConfig(dim=32, depth=1, mlp_dim=32, dropout=0.5)).train().transformer.layers[0][1]


def fused(one: FeedForward) -> Any:
    return with_fused_step(nn.Sequential(copy.deepcopy(one)))[0]


X = torch.rand(2, 5, 32, generator=torch.Generator().manual_seed(0))


def test_the_fused_block_follows_the_mode_of_its_dropouts() -> None:
    one = block()
    for layer in one.net:
        if isinstance(layer, nn.Dropout):
            layer.eval()
    torch.testing.assert_close(fused(one)(X), one(X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("place", [2, 3, 5, "net"])
def test_hooks_inside_the_fused_block_run(place: Any) -> None:
    one = fused(block())
    seen = []
    (one.net if place == "net" else one.net[place]).register_forward_hook(lambda *_: seen.append(place))
    one(X)
    assert seen == [place]


@pytest.mark.parametrize(
    ("place", "layer"), [(2, nn.ReLU()), (3, nn.Identity()), (5, nn.Identity()), (3, nn.Dropout(1.0))]
)
def test_a_block_with_other_layers_is_not_fused(place: int, layer: nn.Module) -> None:
    one = block()
    for k in (3, 5):
        one.net[k].p = 0.0
    one.net[place] = layer.train()
    torch.testing.assert_close(fused(one)(X), one(X))


def test_a_dropout_of_everything_leaves_nothing() -> None:
    model = with_quick_dropout(nn.Sequential(nn.Dropout(1.0))).train()
    assert isinstance(model[0], QuickDropout)
    assert not model(torch.ones(3, 4)).any()


def test_the_penalty_of_a_model_with_a_loss_is_in_it_once() -> None:
    """Two regularisers: the task behind the loss is that of the model."""
    model = bert("sdpa").train()
    batch = {"input_ids": torch.arange(6)[None], "labels": torch.tensor([1])}
    alone = float(model(**batch).loss.detach())
    with VarianceRegulariser(gamma=2.0).attach(model) as one, VarianceRegulariser("decrease").attach(model) as two:
        both = float(model(**batch).loss.detach())
        assert both == pytest.approx(alone + one.figures()["penalty"] + two.figures()["penalty"], rel=1e-6)
