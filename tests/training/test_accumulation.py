"""The penalty under gradient accumulation: gradients of a step of the Trainer against the formula by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from geoattn._core.errors import GeoattnError
from geoattn.training.accumulation import micro_batches
from geoattn.training.adapters import trainer_callback
from geoattn.training.regularisers.variance import VarianceRegulariser

REGULARISER = VarianceRegulariser("decrease", gamma=2.0)
TEXTS = [torch.randint(40, (9,), generator=torch.Generator().manual_seed(i)) for i in range(8)]


def causal() -> Any:
    torch.manual_seed(0)
    config = tf.GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return tf.GPT2LMHeadModel(config)


def classifier() -> Any:
    torch.manual_seed(0)
    config = tf.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return tf.BertForSequenceClassification(config)


def rows(kind: str, lengths: list[int]) -> list[dict[str, Any]]:
    """Labels of unequal numbers of items: the tokens after ``length`` do not count."""
    made = []
    for i, (text, length) in enumerate(zip(TEXTS, lengths, strict=True)):
        labels = torch.where(torch.arange(9) < length, text, -100) if kind == "causal" else i % 2
        made.append({"input_ids": text, "labels": labels})
    return made


def gradients(model: Any, data: list[dict[str, Any]], folder: Path, accumulation: int, callbacks: list[Any]) -> Any:
    """Gradients of the first step of the Trainer on all rows, in ``accumulation`` micro-batches."""

    class Sequential(tf.Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(data)

    arguments = tf.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=8 // accumulation, max_steps=1, optim="sgd",
        gradient_accumulation_steps=accumulation, learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0.0,
        report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    before = [p.detach().clone() for p in model.parameters()]
    Sequential(model, arguments, train_dataset=data, callbacks=callbacks).train()
    return [b - p.detach() for b, p in zip(before, model.parameters(), strict=True)]


def by_hand(model: Any, data: list[dict[str, Any]], accumulation: int) -> Any:
    """The gradient of the mean of the penalties of the micro-batches."""
    with REGULARISER.attach(model) as handle:
        for micro in torch.arange(8).chunk(accumulation):
            model(input_ids=torch.stack([data[int(i)]["input_ids"] for i in micro]))
            (handle.penalty() / accumulation).backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


@pytest.mark.parametrize("lengths", [[9] * 8, [9, 3, 9, 4, 9, 5, 9, 6]], ids=["equal", "unequal"])
@pytest.mark.parametrize("accumulation", [1, 2, 4, 8])
def test_causal(tmp_path: Path, accumulation: int, lengths: list[int]) -> None:
    data = rows("causal", lengths)
    both = gradients(causal(), data, tmp_path, accumulation, [trainer_callback(REGULARISER)])
    task = gradients(causal(), data, tmp_path, accumulation, [])
    for total, own, penalty in zip(both, task, by_hand(causal(), data, accumulation), strict=True):
        torch.testing.assert_close(total - own, penalty, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("accumulation", [1, 2, 4, 8])
def test_the_ratio_to_a_task_that_the_trainer_scales(tmp_path: Path, accumulation: int) -> None:
    """The Trainer multiplies the loss of a classifier by the accumulation; task and penalty stay in proportion."""
    data = rows("classifier", [9] * 8)
    both = gradients(classifier(), data, tmp_path, accumulation, [trainer_callback(REGULARISER)])
    task = gradients(classifier(), data, tmp_path, accumulation, [])
    whole = gradients(classifier(), data, tmp_path, 1, [])
    scale = torch.cat([g.flatten() for g in task]).norm() / torch.cat([g.flatten() for g in whole]).norm()
    for total, own, penalty in zip(both, task, by_hand(classifier(), data, accumulation), strict=True):
        torch.testing.assert_close(total - own, float(scale) * penalty, rtol=1e-3, atol=1e-5)


def test_micro_batches_of_the_last_step() -> None:
    assert [micro_batches(10, 4, step) for step in range(7)] == [4, 4, 2, 4, 4, 2, 4]
    assert micro_batches(None, 4, 2) == 4


def test_a_short_last_step(tmp_path: Path) -> None:
    """Three micro-batches with an accumulation of two: the second step has one, with the whole penalty."""
    data = rows("causal", [9] * 8)[:6]
    seen: list[float] = []

    class Note(tf.TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(callback.handles[0].weight)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(callback.handles[0].weight)

    callback = trainer_callback(REGULARISER)
    arguments = tf.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=2, num_train_epochs=1, gradient_accumulation_steps=2,
        report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    tf.Trainer(causal(), arguments, train_dataset=data, callbacks=[callback, Note()]).train()
    assert seen == [0.5, 0.5, 1.0]


def test_compiled_models_are_refused(tmp_path: Path) -> None:
    arguments = tf.TrainingArguments(
        output_dir=str(tmp_path), torch_compile=True, gradient_accumulation_steps=2, report_to=[], use_cpu=True
    )
    with pytest.raises(GeoattnError, match="gradient_accumulation_steps=1"):
        trainer_callback(REGULARISER).on_train_begin(arguments, tf.TrainerState(), None, model=causal())
