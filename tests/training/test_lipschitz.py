"""The Lipschitz regulariser: values against a dense Jacobian, gradients against finite differences, bad input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.session import capture
from geoattn.training import LipschitzRegulariser
from tests.training.small_models import BATCH, bert, lvit


def llama() -> Any:
    """Causal, rotary, two query heads to a key head."""
    config = tf.LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24,
    )  # fmt: skip
    torch.manual_seed(0)
    model = tf.LlamaModel(config).double()
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "LlamaRMSNorm":  # works in float32 whatever it is given, too coarse for differences
            norm = nn.RMSNorm(module.weight.shape, eps=module.variance_epsilon, dtype=torch.float64)
            model.set_submodule(name, norm)
    return model


def images() -> Tensor:
    return torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


MODELS = {
    "lvit": lambda: (lvit().double(), {"images": images()}),
    "bert": lambda: (bert("sdpa"), {k: v for k, v in BATCH.items() if k != "labels"}),
    "bert, eager": lambda: (bert("eager"), {k: v for k, v in BATCH.items() if k != "labels"}),
    "llama": lambda: (llama(), {"input_ids": BATCH["input_ids"]}),
}


def dense_constants(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Of every head of every sample, from the Jacobian row by row."""
    with capture(model, inputs=True) as record:
        model(**batch)
    found = []
    for call in record:
        maps = call.attention()
        groups = call.shape[1] // call.value.shape[1]
        for sample in range(call.shape[0]):
            for head in range(call.shape[1]):
                out = (maps[sample, head] @ call.value[sample, head // groups]).flatten()
                rows = [torch.autograd.grad(one, call.tokens, retain_graph=True)[0][sample].flatten() for one in out]
                found.append(torch.linalg.matrix_norm(torch.stack(rows), 2))
    return torch.stack(found)


@pytest.mark.parametrize("name", MODELS)
def test_values_against_a_dense_jacobian(name: str) -> None:
    model, batch = MODELS[name]()
    model.train()
    exact = dense_constants(model, batch)
    with LipschitzRegulariser(heads="all", gamma=1.0, tolerance=1e-9, steps=100).attach(model) as handle:
        model(**batch)
        assert float(handle.penalty().detach()) == pytest.approx(float(exact.mean()), rel=1e-7)
        assert handle.figures()["lipschitz_max"] == pytest.approx(float(exact.max()), rel=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_against_finite_differences(name: str) -> None:
    """Along a random direction in all parameters, to 1e-5."""
    model, batch = MODELS[name]()
    model.train()
    regulariser = LipschitzRegulariser(gamma=1.0, heads=4, tolerance=1e-10, steps=100)
    draw = torch.Generator().manual_seed(3)
    moves = [torch.randn(p.shape, generator=draw, dtype=p.dtype) for p in model.parameters()]

    padding = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None]
    for p, move in zip(model.parameters(), moves, strict=True):
        if any(p is m.weight for m in padding):  # torch gives the vector of padding no gradient
            move[0] = 0.0
    start = [p.detach().clone() for p in model.parameters()]

    def penalty(shift: float) -> Tensor:
        with torch.no_grad():
            for p, first, move in zip(model.parameters(), start, moves, strict=True):
                p.copy_(first + shift * move)
        with regulariser.attach(model) as handle:
            model(**batch)
            return handle.penalty()

    slopes = torch.autograd.grad(penalty(0.0), list(model.parameters()), allow_unused=True)
    exact = sum(float((s * m).sum()) for s, m in zip(slopes, moves, strict=True) if s is not None)
    difference = float((penalty(1e-6) - penalty(-1e-6)).detach()) / 2e-6
    assert exact == pytest.approx(difference, rel=1e-5)
    assert abs(exact) > 1e-3


def test_descent_lowers_it() -> None:
    model, batch = MODELS["lvit"]()
    before = float(dense_constants(model, batch).mean())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    with LipschitzRegulariser(gamma=1.0, heads=4).attach(model) as handle:
        for _ in range(20):
            optimiser.zero_grad()
            model(**batch)
            handle.penalty().backward()
            optimiser.step()
    assert float(dense_constants(model, batch).mean()) < 0.9 * before


def test_the_draw() -> None:
    """Seed and step decide; as many heads as asked for; the other direction has the other sign."""
    model, batch = MODELS["lvit"]()
    found = []
    for settings in ({"seed": 1}, {"seed": 1}, {"seed": 2}, {"seed": 1, "direction": "increase"}):
        with LipschitzRegulariser(gamma=1.0, heads=1, **settings).attach(model) as handle:
            model(**batch)
            found.append(float(handle.penalty().detach()))
    assert found[0] == found[1] == -found[3]
    assert found[0] != found[2]


def test_a_value_is_a_lower_bound_after_few_steps() -> None:
    model, batch = MODELS["lvit"]()
    exact = dense_constants(model, batch)
    with LipschitzRegulariser(heads="all", gamma=1.0, steps=2).attach(model) as handle:
        model(**batch)
        rough = float(handle.penalty().detach())
    assert 0.5 * float(exact.mean()) < rough < float(exact.mean())


def test_without_gradients_there_is_nothing() -> None:
    model, batch = MODELS["lvit"]()
    with LipschitzRegulariser().attach(model) as handle, torch.no_grad():
        model(**batch)
        assert float(handle.penalty()) == 0.0
        assert "lipschitz" not in handle.figures()


def test_one_token_has_the_norm_of_its_values() -> None:
    """A token alone attends to itself: the map is V, whatever Q and K."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 1, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    with LipschitzRegulariser(gamma=1.0, heads="all", tolerance=1e-9).attach(layer) as handle:
        layer(torch.rand(1, 1, 8, dtype=torch.float64).requires_grad_())
        exact = torch.linalg.matrix_norm(layer.self_attn.in_proj_weight[16:], 2)
        assert float(handle.penalty().detach()) == pytest.approx(float(exact.detach()), rel=1e-8)


def test_coincident_tokens_have_it_too() -> None:
    """Equal tokens are weighed equally: the map is the mean of V x, with the norm of V, n times."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 1, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    with LipschitzRegulariser(gamma=1.0, heads="all", tolerance=1e-9).attach(layer) as handle:
        layer(torch.rand(1, 1, 8, dtype=torch.float64).expand(1, 5, 8).clone().requires_grad_())
        exact = torch.linalg.matrix_norm(layer.self_attn.in_proj_weight[16:], 2)
        assert float(handle.penalty().detach()) == pytest.approx(float(exact.detach()), rel=1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"direction": "up"}, "direction must be one of"),
        ({"gamma": -1.0}, "gamma"),
        ({"heads": 0}, "heads"),
        ({"heads": "some"}, "'all' or"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"steps": 0}, "steps"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(GeoattnError, match=message):
        LipschitzRegulariser(**settings)
