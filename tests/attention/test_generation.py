"""Generation with a cache of keys: each step is a row of the map of the whole sequence."""

from __future__ import annotations

import pytest
import torch
import transformers as tf

from geoattn.attention import capture
from tests.attention.zoo import ARCHITECTURES, LENGTH

NEW = 4


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("inputs", [False, True])
def test_steps_are_rows_of_the_whole_map(cache: str, implementation: str, inputs: bool) -> None:
    architecture = ARCHITECTURES["llama"]
    config = architecture.config()
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(config).eval()
    batch = architecture.batch("left")
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    with capture(model, inputs=inputs) as record:
        tokens = model.generate(**batch, **options, cache_implementation=None if cache == "dynamic" else cache)

    whole = torch.cat([batch["attention_mask"], torch.ones(len(tokens), NEW, dtype=torch.long)], dim=1)
    position = (whole.cumsum(1) - 1).clamp(min=0)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(tokens, attention_mask=whole, position_ids=position, output_attentions=True).attentions

    assert len(record) == 2 * NEW  # the prompt and three steps, in two layers
    for call in record:
        layer = int(call.name.split(".")[2])
        step = call.visit
        n, m = call.shape[2:]
        assert n == (LENGTH if step == 0 else 1)
        assert call.offset == (0 if step == 0 else LENGTH + step - 1)
        if cache == "dynamic":
            assert m == LENGTH + step
        assert torch.equal(call.valid, whole[:, call.offset : call.offset + n].bool())
        captured, width = call.attention(), min(m, maps[0].shape[-1])
        expected = maps[layer][:, :, call.offset : call.offset + n, :width] * call.valid[:, None, :, None]
        torch.testing.assert_close(captured[..., :width], expected, atol=1e-6, rtol=0)
        assert not captured[..., width:].any()


def test_steps_cost_no_more_than_their_rows() -> None:
    model = tf.LlamaForCausalLM(ARCHITECTURES["llama"].config()).eval()
    with capture(model) as record:
        model.generate(torch.randint(3, 50, (1, 12)), max_new_tokens=3, min_new_tokens=3, pad_token_id=0)
    step = record[2]
    assert step.shape == (1, 4, 1, 13)
    assert step.nbytes <= 4 * 4 * 13 + 8 * 13  # the row of four heads, and the mask


def test_encoder_decoder_generation() -> None:
    architecture = ARCHITECTURES["bart"]
    model = tf.BartForConditionalGeneration(architecture.config()).eval()
    batch = {k: v for k, v in architecture.batch("right").items() if not k.startswith("decoder")}
    with capture(model) as record:
        model.generate(**batch, max_new_tokens=3, min_new_tokens=3, do_sample=False, num_beams=1)
    cross = [call for call in record if call.kind == "cross"]
    assert {call.shape[2:] for call in cross} == {(1, LENGTH)}
    assert all(torch.equal(call.valid_keys, batch["attention_mask"].bool()) for call in cross)
    growing = [call.shape[3] for call in record if call.kind == "self" and "decoder" in call.name]
    assert growing == [1, 1, 2, 2, 3, 3]
