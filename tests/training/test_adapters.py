"""Adapters against the real libraries: the same steps as a plain loop with the same penalty."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.models.lvit import LViT
from geoattn.training.adapters import lightning_callback, trainer_callback
from geoattn.training.interventions.edge_mask import EdgeMask
from geoattn.training.regularisers.variance import VarianceRegulariser
from tests.training.small_models import SMALL

REGULARISER = VarianceRegulariser("increase", gamma=3.0)
ROWS = [
    {
        "input_ids": torch.randint(50, (6,), generator=torch.Generator().manual_seed(i)),
        "attention_mask": torch.tensor([1] * 6 if i % 2 else [1, 1, 1, 1, 0, 0]),
        "labels": i % 2,
    }
    for i in range(8)
]


def bert() -> Any:
    config = tf.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    return tf.BertForSequenceClassification(config)


def assert_same(a: torch.nn.Module, b: torch.nn.Module) -> None:
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)


def arguments(folder: Path, **more: Any) -> Any:
    return tf.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, num_train_epochs=1, optim="sgd", learning_rate=0.1,
        lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[], logging_steps=1, disable_tqdm=True,
        use_cpu=True, save_strategy="no", dataloader_pin_memory=False, **more,
    )  # fmt: skip


def hugging_face(folder: Path, callbacks: list[Any], **more: Any) -> Any:
    class Sequential(tf.Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(ROWS)

    return Sequential(bert(), arguments(folder, **more), train_dataset=ROWS, eval_dataset=ROWS, callbacks=callbacks)


def test_hugging_face_trainer(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    trainer = hugging_face(tmp_path, [trainer_callback(REGULARISER)])
    trainer.train()
    model = bert()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with REGULARISER.attach(model):
        for start in (0, 4):
            batch = {k: torch.stack([torch.as_tensor(r[k]) for r in ROWS[start : start + 4]]) for k in ROWS[0]}
            sgd.zero_grad()
            model(**batch).loss.backward()
            sgd.step()
    assert_same(trainer.model, model)
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert all("geoattn/penalty" in row and "geoattn/variance" in row for row in logged)
    assert not any(m._forward_hooks for m in trainer.model.modules())
    plain = hugging_face(tmp_path, [])
    plain.train()
    with pytest.raises(AssertionError):  # the penalty did something
        assert_same(plain.model, model)


def test_evaluation_keeps_its_loss(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    trainer = hugging_face(tmp_path, [trainer_callback(REGULARISER)], eval_strategy="epoch")
    trainer.train()
    during = next(row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row)
    assert during == pytest.approx(trainer.evaluate()["eval_loss"], rel=1e-6)


def test_label_smoothing_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    trainer = hugging_face(tmp_path, [trainer_callback(REGULARISER)], label_smoothing_factor=0.1)
    with pytest.raises(GeoattnError, match="label_smoothing_factor=0"):
        trainer.train()


IMAGES = [(torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(i)), i % 10) for i in range(8)]


def fit(whole: bool, *regularisers: Any) -> Any:
    """Fit with Lightning; the step calls the module itself, or a part of it."""
    lightning = pytest.importorskip("lightning")
    torch.manual_seed(0)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = LViT(SMALL)

        def forward(self, x: Any) -> Any:
            return self.net(x)

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            logits = self(x) if whole else self.net(x)
            loss = functional.cross_entropy(logits, y)
            return loss if whole else {"loss": loss}

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    start = copy.deepcopy(module.net)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[lightning_callback(*regularisers)] if regularisers else [],
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(IMAGES, batch_size=4))
    return module, start, trainer


@pytest.mark.filterwarnings("ignore")  # Lightning's own advice on workers and intervals
@pytest.mark.parametrize("whole", [True, False])
def test_lightning(whole: bool) -> None:
    module, model, trainer = fit(whole, REGULARISER)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with REGULARISER.attach(model) as handle:
        for start in (0, 4):
            x = torch.stack([image for image, _ in IMAGES[start : start + 4]])
            y = torch.tensor([label for _, label in IMAGES[start : start + 4]])
            sgd.zero_grad()
            (functional.cross_entropy(model(x), y) + handle.penalty()).backward()
            sgd.step()
    assert_same(module.net, model)
    assert trainer.callback_metrics["geoattn/variance"] > 0
    assert "training_step" not in vars(module)
    assert not any(m._forward_hooks for m in module.modules())
    plain, _, _ = fit(whole)
    with pytest.raises(AssertionError):
        assert_same(plain.net, model)


@pytest.mark.filterwarnings("ignore")
def test_lightning_with_an_intervention() -> None:
    masked, _, _ = fit(False, EdgeMask(0.5))
    plain, _, _ = fit(False)
    with pytest.raises(AssertionError):
        assert_same(masked.net, plain.net)


@pytest.mark.parametrize("given", [(), ("variance",)])
def test_bad_regularisers(given: Any) -> None:
    with pytest.raises(GeoattnError, match="expected regularisers"):
        trainer_callback(*given)
