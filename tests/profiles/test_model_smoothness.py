"""Local constants of the layers and heads of real architectures, against autograd of the module itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.attention.linear_layers import LinearLayers
from geoattn.profiles.batches import read_batch
from geoattn.profiles.model_constants import SmoothnessPass
from geoattn.smoothness.layer_smoothness import layer_smoothness


def llama(**changes):
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    settings = {
        "vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.4,
    }  # fmt: skip
    return LlamaModel(LlamaConfig(**settings | changes)).eval()


def bert():
    return ga.load_model(
        "bert-tiny", weights="random", vocab_size=50, hidden_size=16, num_hidden_layers=1, intermediate_size=16
    )


def gpt2():
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=1, n_head=2, initializer_range=0.5)
    config._attn_implementation = "eager"
    return GPT2Model(config).eval()


def qwen3():
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=64, initializer_range=0.4,
    )  # fmt: skip
    return Qwen3Model(config).eval()


def dense(p, heads=None):
    """(outputs, inputs) Jacobian of sample 0 from the formula of attention, by autograd through turned projections."""
    x = p.tokens[0].clone()
    real = torch.ones(len(x), dtype=torch.bool) if p.mask is None else p.mask[0]

    def out(move):
        q = p.q[0] + _turned(p.turn_query, torch.einsum("nd,hrd->hnr", move, p.query))
        k = p.k[0] + _turned(p.turn_key, torch.einsum("nd,hrd->hnr", move, p.key))
        v = p.v[0] + torch.einsum("nd,hpd->hnp", move, p.value)
        logits = q @ k.mT
        if p.causal:
            logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -torch.inf)
        logits = logits.masked_fill(~real, -torch.inf)
        o = logits.softmax(-1) @ v
        if heads is not None:
            o = o[heads]
            return (o if p.output is None else o @ p.output[heads].T)[real]
        if p.output is None:
            return o.transpose(0, 1).flatten(1)[real]
        return torch.einsum("hnp,hep->ne", o, p.output)[real]

    def _turned(turn, t):
        return t if turn is None else torch.einsum("hnrk,hnk->hnr", turn[0], t)

    jacobian = torch.func.jacrev(out)(torch.zeros_like(x))[:, :, real]
    return torch.linalg.matrix_norm(jacobian.flatten(0, 1).flatten(1), 2)


@pytest.mark.parametrize("make", [llama, bert, gpt2, qwen3], ids=["llama", "bert", "gpt2", "qwen3"])
def test_heads_and_layers_against_the_dense_jacobian(make):
    model = make()
    ids = torch.randint(3, 40, (2, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    look = SmoothnessPass(model, tolerance=1e-7)
    found = list(look.projections(read_batch({"input_ids": ids, "attention_mask": mask}, model, 0)))
    assert found, look.skipped
    for _, p in found:
        assert p.output is not None
        r = layer_smoothness(p, tolerance=1e-7)
        assert r.n.tolist() == [5, 7]
        for head in range(r.heads.shape[1]):
            assert r.heads[0, head] == pytest.approx(float(dense(p, head)), rel=1e-6)
        assert r.whole[0] == pytest.approx(float(dense(p)), rel=1e-6)
        assert (r.moves[0, :, 5:] == 0).all()
        np.testing.assert_allclose((r.moves**2).sum(-1), 1.0, rtol=1e-9)
        assert (r.heads <= r.sharper).all()
        assert (r.sharper <= r.bound).all()
        assert (r.whole <= r.whole_sharper).all()


@pytest.mark.parametrize("make", [llama, qwen3], ids=["rotary", "norms of queries"])
def test_the_projections_are_those_of_the_module(make):
    """The layer without residual is its module: autograd of the module gives the same constant."""
    model = make()
    ids = torch.randint(3, 40, (1, 6), generator=torch.Generator().manual_seed(2))
    (_, p), *_ = SmoothnessPass(model).projections(read_batch({"input_ids": ids}, model, 0))
    assert p.turned
    assert p.causal
    twice = model.double()
    module = twice.layers[0].self_attn
    places = twice.rotary_emb(p.tokens, torch.arange(6)[None])
    reference = ga.smoothness.local_lipschitz_of(
        lambda x: module(x, position_embeddings=places, attention_mask=None, is_causal=True)[0], p.tokens
    )
    assert layer_smoothness(p, tolerance=1e-7).whole[0] == pytest.approx(reference.value, rel=1e-6)


def test_an_image_model_with_its_norm_inside():
    """Tokens are those after the norm of the block; the map is that of `local_lipschitz`."""
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=3)
    found = ga.model_smoothness(model, digits, tolerance=1e-7)
    assert found.layers == tuple(f"transformer.layers.{k}.0" for k in range(8))
    assert set(found.table["status"]) == {"CONVERGED"}
    block = model.double().transformer.layers[0][0]
    with ga.capture(model, inputs=True, layers="transformer.layers.0") as record:
        model(digits.pixels().double())
    x = block.norm(record[0].tokens).detach()
    q, k, v = block.to_qkv.weight.detach().chunk(3)
    expected = ga.local_lipschitz(x, (q / 8, k), v, tolerance=1e-7)
    rows = found.table[(found.table["layer"] == 0) & (found.table["head"] == 0)]
    np.testing.assert_allclose(rows["value"], expected.value, rtol=1e-6)
    bounds = ga.lipschitz_bounds(k.T @ q / 8, v, 17, float(x[0].norm(dim=1).max()))
    assert rows["bound"].iloc[0] == pytest.approx(bounds["discrete upper"].value, rel=1e-9)
    assert rows["sharper"].iloc[0] == pytest.approx(bounds["discrete upper, sharper"].value, rel=1e-9)
    assert rows["r2_gamma"].iloc[0] == pytest.approx(bounds.r2_gamma[0], rel=1e-9)


def test_torch_layers_without_linear_modules():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    found = ga.model_smoothness(model, [torch.randn(2, 5, 8)], tolerance=1e-7)
    x = torch.randn(1, 5, 8).double()
    attention = model.double().self_attn
    (_, p), *_ = SmoothnessPass(model).projections(read_batch(x, model, 0))
    p = layer_smoothness(p, tolerance=1e-7)
    assert found.layers == ("self_attn",)

    def heads(t):
        q, k, v = functional.linear(t, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
        parts = [functional.scaled_dot_product_attention(*(w[:, i : i + 4] for w in (q, k, v))) for i in (0, 4)]
        return torch.cat(parts, -1) @ attention.out_proj.weight.T

    reference = ga.smoothness.local_lipschitz_of(heads, x[0]).value
    plain = ga.smoothness.local_lipschitz_of(
        lambda t: heads(t) @ torch.linalg.inv(attention.out_proj.weight.T), x[0]
    ).value
    assert p.whole[0] == pytest.approx(reference if p.projected else plain, rel=1e-6)


def test_a_bias_of_the_queries_is_in_the_bound():
    """A bias that all tokens follow: the bound of the map without it is passed, that with it is not."""
    model = bert()
    attention = model.encoder.layer[0].attention.self
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight.mul_(30)
        attention.query.bias.normal_(0, 30, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(3, 40, (4, 9), generator=torch.Generator().manual_seed(1))
    look = SmoothnessPass(model)
    ((_, p),) = look.projections(read_batch({"input_ids": ids}, model, 0))
    assert p.bias is not None
    np.testing.assert_allclose(p.bias.flatten(), attention.query.bias.detach().double() / math.sqrt(8), rtol=1e-6)
    r = layer_smoothness(p)
    assert (r.heads <= r.sharper).all()
    assert (r.sharper <= r.bound).all()


def test_limits_progress_and_summary():
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=5)
    seen = []
    found = ga.model_smoothness(
        model, digits, samples=2, whole=False, layers="transformer.layers.1", progress=lambda *a: seen.append(a)
    )
    assert seen == [(2, 2)]
    assert len(found.table) == 2
    assert found.table["head"].notna().all()
    again = ga.model_smoothness(model, [digits.pixels()], samples=2, whole=False, layers="transformer.layers.1")
    np.testing.assert_allclose(again.table["value"], found.table["value"], rtol=1e-6)
    summary = found.summary()
    assert summary["value"].iloc[0] == pytest.approx(found.table["value"].mean())
    assert summary["relative_residual"].iloc[0] < 1e-3


class Mixing(nn.Module):
    """Queries that see their neighbour."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        q = self.q(x)
        q = q + q.roll(1, dims=1)
        return functional.scaled_dot_product_attention(q[:, None], self.k(x)[:, None], self.v(x)[:, None])[:, 0]


class Windowed(Mixing):
    """A mask that is neither causal nor padding."""

    def forward(self, x):
        n = x.shape[1]
        near = (torch.arange(n)[:, None] - torch.arange(n)[None]).abs() <= 1
        parts = (layer(x)[:, None] for layer in (self.q, self.k, self.v))
        return functional.scaled_dot_product_attention(*parts, attn_mask=near)[:, 0]


class Leaning(Mixing):
    """An additive bias on the logits."""

    def forward(self, x):
        n = x.shape[1]
        slope = -(torch.arange(n)[:, None] - torch.arange(n)[None]).abs().to(x.dtype)
        parts = (layer(x)[:, None] for layer in (self.q, self.k, self.v))
        return functional.scaled_dot_product_attention(*parts, attn_mask=slope)[:, 0]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Mixing(), "mix tokens"),
        (Windowed(), "neither causal nor padding"),
        (Leaning(), "additive bias"),
    ],
)
def test_what_cannot_be_measured_is_said(model, words):
    with pytest.raises(GeoattnError, match=words):
        ga.model_smoothness(model, [torch.randn(2, 6, 4)])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("model", [torch.zeros(1)]), "model must be a torch.nn.Module"),
        ((Windowed(), torch.zeros(1, 2, 4)), "must be an iterable of batches"),
        ((Windowed(), []), "batches were empty"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(GeoattnError, match=words):
        ga.model_smoothness(*arguments)
    with pytest.raises(GeoattnError, match="samples must be"):
        ga.model_smoothness(Windowed(), [torch.zeros(1, 2, 4)], samples=0)


def test_the_model_is_left_alone():
    model = ga.load_model("lvit-digits").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ga.model_smoothness(model, [torch.rand(1, 1, 8, 8)], samples=1, whole=False, layers="transformer.layers.0")
    assert model.training
    assert next(model.parameters()).dtype == torch.float32
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_linear_layers_by_visit():
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    with LinearLayers(model) as layers:
        model(torch.ones(2, 3))
    assert len(layers.passes) == 2
    assert layers.inside("0", 1)[0].input.min() >= 0
    assert layers.inside("0", 2) == []


def test_texts_are_taken_as_a_profile_takes_them(tmp_path) -> None:
    """A list of texts, and a table with a column of them, with the tokenizer that lies beside the model."""
    import pandas as pd

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    ga.load_model("bert-tiny", weights="random", classes=2, vocab_size=9).save_pretrained(tmp_path)
    model, texts = ga.load_model(tmp_path), ["a good film", "a bad film"]
    found = ga.model_smoothness(model, texts, layers="*layer.0*")
    same = ga.model_smoothness(model, pd.DataFrame({"said": texts}), column="said", layers="*layer.0*")
    assert found.settings["samples"] == 2
    assert found.table["n"].max() == 5  # with the tokens at both ends
    assert found.table["value"].tolist() == same.table["value"].tolist()
