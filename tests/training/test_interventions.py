"""Edge masks, temperature and dropout: what they do to the attention of models as people have them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.training.interventions.dropout import AttentionDropout
from geoattn.training.interventions.edge_mask import EdgeMask
from geoattn.training.interventions.temperature import SoftmaxTemperature
from geoattn.training.regularisers.variance import VarianceRegulariser
from tests.attention.blocks import WIDTH, EinsumAttention, Stack, TimmAttention, VitPytorchAttention

WAYS = ["fused", "timm", "vit-pytorch", "einsum", "torch", "torch-weights"]


class Torch(nn.Module):
    """nn.MultiheadAttention, with or without its weights as an output."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.mha, self.need = nn.MultiheadAttention(WIDTH, 4, batch_first=True), need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.mha(x, x, x, need_weights=self.need)[0]


def attention(way: str) -> nn.Module:
    torch.manual_seed(0)
    return {
        "fused": lambda: TimmAttention(True),
        "timm": lambda: TimmAttention(False),
        "vit-pytorch": VitPytorchAttention,
        "einsum": EinsumAttention,
        "torch": lambda: Torch(False),
        "torch-weights": lambda: Torch(True),
    }[way]().train()


def maps(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    with capture(model) as record:
        model(*args, **kwargs)
    return record[0].attention()


@pytest.mark.parametrize("way", WAYS)
def test_edge_mask_on_the_logits(way: str) -> None:
    model, x = attention(way), torch.randn(16, 9, WIDTH)
    free = maps(model, x)
    with EdgeMask(0.4).attach(model) as handle:
        masked = maps(model, x)
        assert handle.figures()["calls"] == 1
    kept = masked > 0
    assert kept.diagonal(dim1=-2, dim2=-1).all()  # the self edge stays
    off = ~torch.eye(9, dtype=torch.bool)
    assert abs(float(kept[..., off].double().mean()) - 0.6) < 5 * math.sqrt(0.24 / kept[..., off].numel())
    expected = free.masked_fill(~kept, 0.0)
    torch.testing.assert_close(masked, expected / expected.sum(-1, keepdim=True))  # renormalised
    torch.testing.assert_close(maps(model, x), free)  # removed


@pytest.mark.parametrize("way", WAYS)
def test_edge_mask_on_the_weights(way: str) -> None:
    """The output is that of weights with entries set to 0, not renormalised; a capture sees them before."""
    model, x = attention(way), torch.randn(4, 6, WIDTH)
    free = maps(model, x)
    with EdgeMask(0.5, where="weights").attach(model):
        torch.testing.assert_close(maps(model, x), free)


def test_masked_weights_reach_the_output_and_are_not_renormalised() -> None:
    """One-hot values show the weights that were used: each is 0 or what it was."""
    query, key = torch.randn(2, 8, 5, 4), torch.randn(2, 8, 5, 4)
    value = torch.eye(5).expand(2, 8, 5, 5)

    class Bare(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(q, key, value)

    model = Bare().train()
    free = model(query)
    with EdgeMask(0.5, where="weights").attach(model):
        used = model(query)
    gone = used == 0
    torch.testing.assert_close(used, free.masked_fill(gone, 0.0))
    assert not gone.diagonal(dim1=-2, dim2=-1).any()
    assert abs(float(gone.double().mean()) - 0.5 * 20 / 25) < 0.1


def test_rate_zero_changes_nothing_and_a_high_rate_leaves_the_token_itself() -> None:
    model, x = attention("fused"), torch.randn(3, 5, WIDTH)
    free = model(x)
    for where in ("logits", "weights"):
        with EdgeMask(0.0, where=where).attach(model):
            torch.testing.assert_close(model(x), free)
    with EdgeMask(1 - 1e-9).attach(model):
        torch.testing.assert_close(maps(model, x), torch.eye(5).expand(3, 4, 5, 5))


def test_only_while_the_model_trains() -> None:
    model, x = attention("fused"), torch.randn(3, 5, WIDTH)
    model.eval()
    free = model(x)
    for intervention in (EdgeMask(0.5), EdgeMask(0.5, "weights"), AttentionDropout(0.5)):
        with intervention.attach(model):
            assert torch.equal(model(x), free)
    with SoftmaxTemperature(3.0).attach(model):
        assert not torch.equal(model(x), free)


@pytest.mark.parametrize("way", WAYS)
def test_temperature(way: str) -> None:
    model, x = attention(way), torch.randn(2, 7, WIDTH)
    logits = maps(model, x).log()
    with SoftmaxTemperature(2.5).attach(model):
        torch.testing.assert_close(maps(model, x), (logits / 2.5).softmax(-1))


@pytest.mark.parametrize("way", WAYS)
def test_dropout_keeps_the_mean_and_is_not_in_the_maps(way: str) -> None:
    model, x = attention(way), torch.randn(1, 6, WIDTH)
    free_map, free = maps(model, x), model(x).detach()
    with AttentionDropout(0.3).attach(model), torch.no_grad():
        torch.testing.assert_close(maps(model, x), free_map)
        outputs = model(x.expand(4000, -1, -1))
    assert float((outputs[0] - outputs[1]).abs().max()) > 1e-3
    error = (outputs.mean(0) - free[0]).abs().max() / outputs.std(0).max()
    assert float(error) < 5 / math.sqrt(4000)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_and_causality_stay(implementation: str, side: str) -> None:
    config = tf.LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = tf.LlamaModel(config).train()
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, slice(4, None) if side == "right" else slice(0, 2)] = 0
    batch = {"input_ids": torch.arange(12).reshape(2, 6), "attention_mask": mask}
    for intervention in (EdgeMask(0.9), SoftmaxTemperature(0.5)):
        with intervention.attach(model):
            with capture(model) as record:
                out = model(**batch, use_cache=False).last_hidden_state
        weights = record[0].attention()
        assert out.isfinite().all()
        assert not weights.triu(1).any()
        assert not weights[1][:, :, mask[1] == 0].any()
        real = mask.bool()[:, None].expand(2, 4, 6)
        torch.testing.assert_close(weights.sum(-1)[real], torch.ones(int(real.sum())))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_bert_with_padding(implementation: str) -> None:
    config = tf.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    config._attn_implementation = implementation
    model = tf.BertModel(config).train()
    mask = torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]])
    with EdgeMask(0.7).attach(model) as handle, capture(model) as record:
        out = model(torch.arange(12).reshape(2, 6), attention_mask=mask)
    assert handle.figures()["calls"] == 2
    assert out.last_hidden_state.isfinite().all()
    assert not record[0].attention()[1, :, :, 4:].any()
    zeros = (record[0].attention()[0] == 0).double().mean()
    assert 0.3 < float(zeros) < 0.8


@pytest.mark.parametrize("first", ["mask", "regulariser"])
def test_a_regulariser_sees_what_the_mask_leaves_whichever_came_first(first: str) -> None:
    model, x = attention("fused"), torch.randn(4, 8, WIDTH)
    parts: dict[str, Any] = {"mask": EdgeMask(0.6), "regulariser": VarianceRegulariser("increase")}
    order = [first, *({*parts} - {first})]
    handles = {name: parts[name].attach(model) for name in order}
    torch.manual_seed(3)
    model(x)
    seen = handles["regulariser"].figures()["variance"]
    handles["regulariser"].remove()
    torch.manual_seed(3)
    weights = maps(model, x)
    handles["mask"].remove()
    each = [m[m > 0].var(correction=0) for m in weights.flatten(0, 1)]
    assert math.isclose(seen, float(torch.stack(each).mean().detach()), rel_tol=1e-5)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_some_layers_only() -> None:
    model, x = Stack(TimmAttention(True), VitPytorchAttention(), TimmAttention(True)).train(), torch.randn(2, 5, WIDTH)
    with EdgeMask(0.9).attach(model, layers=["blocks.1", "blocks.2"]) as handle, capture(model) as record:
        model(x)
        assert handle.figures()["calls"] == 2
    assert [bool((call.attention() == 0).any()) for call in record] == [False, True, True]


def test_checkpointing_repeats_the_mask() -> None:
    """The backward pass runs the block again: with another mask the gradients would be wrong."""

    class Checkpointed(nn.Module):
        def __init__(self, inner: nn.Module, on: bool) -> None:
            super().__init__()
            self.inner, self.on = inner, on

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=False) if self.on else self.inner(x)

    x, results = torch.randn(2, 6, WIDTH), []
    for on in (False, True):
        model = Checkpointed(attention("fused"), on).train()
        with EdgeMask(0.5).attach(model):
            torch.manual_seed(1)
            model(x).square().sum().backward()
        results.append([p.grad for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_other_softmaxes_are_left_alone() -> None:
    """A router over experts and a classifier are no attention."""

    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.attn, self.head = nn.Linear(WIDTH, 3), attention("vit-pytorch"), nn.Linear(WIDTH, 5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            gates = self.router(x).softmax(-1)
            return gates, functional.softmax(self.head(self.attn(x)), dim=-1)

    model, x = Routed(), torch.randn(2, 6, WIDTH)
    free = model(x)[0]
    with SoftmaxTemperature(7.0).attach(model) as handle:
        gates, _ = model(x)
        assert handle.figures()["calls"] == 1
    assert torch.equal(gates, free)


def test_an_error_in_the_forward_pass_leaves_no_mode_behind() -> None:
    model = LViT(LViTConfig(depth=1))
    handle = EdgeMask(0.5).attach(model)
    with pytest.raises(GeoattnError, match="takes images"):
        model(torch.rand(2, 3, 28, 28))
    assert torch.overrides._get_current_function_mode() is None
    model(torch.rand(2, 1, 28, 28))
    handle.remove()


def test_the_loop_is_the_same_for_all() -> None:
    model = attention("fused")
    with EdgeMask(0.5).attach(model) as handle:
        model(torch.randn(2, 5, WIDTH))
        assert float(handle.penalty()) == 0.0
    with pytest.raises(GeoattnError, match="removed"):
        handle.penalty()


@pytest.mark.parametrize("make", [lambda: EdgeMask(0.5), lambda: AttentionDropout(0.5), lambda: SoftmaxTemperature(2)])
def test_a_model_without_attention(make: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).train()
    with make().attach(model), pytest.raises(GeoattnError, match="found no attention in Sequential"):
        model(torch.rand(2, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EdgeMask(1.0), "below 1"),
        (lambda: EdgeMask(-0.1), "rate"),
        (lambda: EdgeMask("0.5"), "rate must be a finite number"),
        (lambda: EdgeMask(0.5, where="values"), "'logits' or 'weights'"),
        (lambda: AttentionDropout(1.5), "below 1"),
        (lambda: SoftmaxTemperature(0), "temperature must be a finite number above 0"),
        (lambda: EdgeMask(0.5).attach(Stack(TimmAttention(True)), layers="encoder"), "matches none of the modules"),
        (lambda: EdgeMask(0.5).attach("model"), "torch.nn.Module"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(GeoattnError, match=message):
        make()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("way", ["fused", "vit-pytorch"])
def test_compiled_models(way: str) -> None:
    torch._dynamo.reset()
    model, x = attention(way), torch.randn(2, 7, WIDTH)
    with SoftmaxTemperature(2.0).attach(model):
        expected = model(x)
        compiled = torch.compile(model, backend="eager")
        torch.testing.assert_close(compiled(x), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize("hidden", [-100.0, -1e4, float("-inf")])
def test_what_a_bias_masks_stays_masked_at_any_temperature(hidden: float) -> None:
    """Swin masks with -100: divided by 50 that would be a bias of -2."""

    class Windows(nn.Module):
        def forward(self, x: Tensor, bias: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x, x, attn_mask=bias)

    torch.manual_seed(0)
    x, bias = torch.randn(1, 1, 4, 8), torch.tensor([0.5, -0.5, hidden, hidden]).expand(4, 4)
    model = Windows()
    with SoftmaxTemperature(50.0).attach(model), capture(model) as record:
        model(x, bias)
    weights = record[0].attention()
    assert float(weights[..., 2:].max()) < 1e-30
    expected = ((x @ x.mT / 8**0.5 + bias)[..., :2] / 50).softmax(-1)
    torch.testing.assert_close(weights[..., :2, :2], expected[..., :2, :])  # a token that nobody sees counts as padding
