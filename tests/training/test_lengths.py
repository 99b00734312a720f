"""The variance regulariser on batches of different lengths: uniform attention is worth the same at each of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers as tf

from geoattn import capture
from geoattn._core.errors import GeoattnWarning
from geoattn.training import VarianceRegulariser
from geoattn.training.variance_range import Scales, variance_range
from tests.training.small_models import bert, gradients

PLAIN = {"increase": 1.0, "decrease": 0.0}  # h of uniform attention


def gpt2(**more: Any) -> Any:
    """A causal model whose attention is uniform: its queries and keys are zero."""
    config = tf.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=512, bos_token_id=0,
                           eos_token_id=0, **more)  # fmt: skip
    torch.manual_seed(0)
    model = tf.GPT2LMHeadModel(config).train()
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight[:, :32] = 0.0
            block.attn.c_attn.bias[:32] = 0.0
    return model


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("direction", ["increase", "decrease"])
def test_uniform_causal_attention_has_the_same_penalty_at_each_length(direction: str, implementation: str) -> None:
    model = gpt2(attn_implementation=implementation)
    with VarianceRegulariser(direction).attach(model) as handle:
        for n in (64, 2, 300, 17):
            model(torch.zeros(2, n, dtype=torch.long))
            assert handle.figures()["penalty"] == pytest.approx(PLAIN[direction], abs=1e-3), n


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("direction", ["increase", "decrease"])
def test_samples_of_a_batch_have_scales_of_their_own(direction: str, side: str) -> None:
    """Ten short texts and a long one, padded: no sample lies below the floor of another."""
    lengths = [3] * 10 + [90]
    mask = torch.zeros(11, 90, dtype=torch.long)
    for row, n in zip(mask, lengths, strict=True):
        row[slice(0, n) if side == "right" else slice(90 - n, 90)] = 1
    model = gpt2()
    with VarianceRegulariser(direction).attach(model) as handle:
        model(torch.zeros(11, 90, dtype=torch.long), attention_mask=mask)
        assert handle.figures()["penalty"] == pytest.approx(PLAIN[direction], abs=1e-3)


def test_forward_passes_of_one_step_may_differ_in_length() -> None:
    model = gpt2()
    with VarianceRegulariser("decrease").attach(model) as handle:
        for n in (8, 200):
            model(torch.zeros(1, n, dtype=torch.long))
        assert handle.figures()["penalty"] == pytest.approx(0.0, abs=1e-3)


def test_a_regulariser_serves_models_one_after_the_other() -> None:
    """What it finds in one model is not used in another."""
    one = VarianceRegulariser("decrease")
    for model, n in ((gpt2(), 40), (bert("sdpa"), 6)):
        with one.attach(model.train()) as handle:
            model(input_ids=torch.arange(n)[None] % 50)
            again = handle.figures()["penalty"]
        with VarianceRegulariser("decrease").attach(model) as handle:
            model(input_ids=torch.arange(n)[None] % 50)
            assert handle.figures()["penalty"] == again
    assert one.state() == {}


def test_scale_and_floor_are_those_of_the_mask() -> None:
    """X = a (variance - floor) is (4/3) n times the place of the variance between the ends of its range."""
    model = bert("sdpa")
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])
    with capture(model) as record:
        model(input_ids=torch.arange(12).reshape(2, 6), attention_mask=mask)
    call = record[0]
    variance = torch.tensor([[0.02, 0.03], [0.04, 0.05]], dtype=torch.float64)
    found = Scales().above_floor(call, variance)
    for sample, n in enumerate((6, 3)):
        low, high = variance_range(torch.ones(n, n, dtype=torch.bool))
        torch.testing.assert_close(found[sample], 4 / 3 * n * (variance[sample] - low) / (high - low))


def test_below_the_floor_the_logarithm_goes_on_as_its_tangent() -> None:
    x = torch.tensor([-5.0, -0.1, 0.0, 0.1], dtype=torch.float64, requires_grad=True)
    value = VarianceRegulariser("decrease", b=0.5).h(x)
    torch.testing.assert_close(value[0].item(), math.log(0.5) - 10.0)
    (slope,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(slope[:3], torch.full((3,), 2.0, dtype=torch.float64))
    assert float(slope[3]) < 2.0


def test_a_batch_of_single_tokens_is_said_once_and_ends_no_run() -> None:
    model = gpt2()
    with VarianceRegulariser("decrease").attach(model) as handle:
        model(torch.zeros(2, 8, dtype=torch.long))
        handle.figures()
        model(torch.zeros(2, 1, dtype=torch.long))
        with pytest.warns(GeoattnWarning, match="two entries in a row"):
            assert handle.figures()["penalty"] == 0.0
        model(torch.zeros(2, 1, dtype=torch.long))
        assert handle.figures()["penalty"] == 0.0  # a second warning would be an error here


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_maps_that_are_not_finite_give_a_penalty_that_is_not() -> None:
    """It is no question of padding: the loop names the layer."""
    model = bert("sdpa").train()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.fill_(float("nan"))
    with VarianceRegulariser("decrease").attach(model) as handle:
        model(input_ids=torch.arange(6)[None])
        assert math.isnan(float(handle.penalty().detach()))


def test_a_look_without_gradients_leaves_the_penalty_its_graph() -> None:
    model = bert("sdpa").train()
    ids = torch.arange(6)[None]
    found = []
    for look in (False, True):
        with VarianceRegulariser("decrease").attach(model) as handle:
            model(input_ids=ids)
            if look:
                with torch.no_grad():
                    assert handle.figures()["variance"] > 0
                    assert not handle.penalty().requires_grad
            found.append(gradients(model, handle.penalty()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
