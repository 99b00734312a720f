"""Figures in the Trainer: its history, TensorBoard, Weights & Biases and MLflow, by the name in report_to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from geoattn._core.errors import GeoattnWarning
from geoattn.training.adapters import trainer_callback
from geoattn.training.monitor import Monitor
from geoattn.training.regularisers.variance import VarianceRegulariser
from geoattn.training.trainer_reports import reporters
from tests.training.test_accumulation import causal, rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def run(folder: Path, report_to: str, *attachments: Any, steps: int = 4, kind: Any = tf.Trainer, **more: Any) -> Any:
    arguments = tf.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=2, max_steps=steps, logging_steps=2, report_to=report_to,
        disable_tqdm=True, use_cpu=True, save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    data: Any = rows("causal", [9] * 8)
    trainer = kind(causal(), arguments, train_dataset=data, callbacks=[trainer_callback(*attachments)], **more)
    trainer.train()
    return trainer


def history(trainer: Any, name: str) -> dict[int, float]:
    return {row["step"]: row[name] for row in trainer.state.log_history if name in row}


def test_the_monitor_is_logged_between_its_samples(tmp_path: Path) -> None:
    """By default it measures step 0, 100, ..., and the Trainer logs at others."""
    trainer = run(tmp_path, "none", Monitor())
    assert set(history(trainer, "geoattn/curvature")) == {2, 4}
    assert all(0 < value < 1 for value in history(trainer, "geoattn/monitor_cost").values())


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = run(tmp_path, "tensorboard", VarianceRegulariser("decrease"))
    (folder,) = (tmp_path / "runs").iterdir()  # one run, that of the Trainer
    events = EventAccumulator(str(folder))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("train/geoattn/penalty")}
    assert found == pytest.approx(history(trainer, "geoattn/penalty"))
    assert {"train/loss", "train/geoattn/variance"} <= set(events.Tags()["scalars"])


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    trainer = run(tmp_path, "wandb", VarianceRegulariser("decrease"))
    found = float(wandb.run.summary["train/geoattn/penalty"])
    last = dict(wandb.run.summary)
    wandb.finish()
    assert found == pytest.approx(history(trainer, "geoattn/penalty")[4])
    assert last["train/global_step"] == 4
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    trainer = run(tmp_path / "out", "mlflow", VarianceRegulariser("decrease"))
    (file,) = (tmp_path / "runs").glob("*/*/metrics/geoattn/penalty")
    found = {int(line.split()[2]): float(line.split()[1]) for line in file.read_text().splitlines()}
    assert found == pytest.approx(history(trainer, "geoattn/penalty"))
    assert list((tmp_path / "runs").glob("*/*/metrics/geoattn/variance.transformer.h.0.attn"))


def test_other_reporters_are_named() -> None:
    class Arguments:
        report_to = ("clearml",)

    with pytest.warns(GeoattnWarning, match=r"do not go to clearml.*log_history"):
        assert reporters(Arguments()) == []


def test_a_loss_outside_of_the_model_gets_no_penalty_and_a_warning(tmp_path: Path) -> None:
    def outside(outputs: Any, labels: Any, **_: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())

    with pytest.warns(GeoattnWarning, match=r"VarianceRegulariser did nothing in step 0.*no \.loss") as said:
        trainer = run(tmp_path, "none", VarianceRegulariser("decrease"), compute_loss_func=outside)
    assert len([one for one in said if issubclass(one.category, GeoattnWarning)]) == 1
    assert not history(trainer, "geoattn/penalty")  # nothing was added, and the log does not say that it was


def test_the_strength_does_not_depend_on_the_accumulation(tmp_path: Path) -> None:
    found = []
    for accumulation in (1, 2, 4):
        arguments = tf.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=8 // accumulation, max_steps=2, logging_steps=1,
            gradient_accumulation_steps=accumulation, report_to=[], disable_tqdm=True, use_cpu=True,
            save_strategy="no", dataloader_pin_memory=False, learning_rate=1e-9,
        )  # fmt: skip
        data: Any = 16 * rows("causal", [9] * 8)[:1]  # equal rows: all micro-batches have the same gradients
        callback = trainer_callback(VarianceRegulariser("decrease", a=50.0, strength=0.1))
        trainer = tf.Trainer(causal(), arguments, train_dataset=data, callbacks=[callback])
        trainer.train()
        found.append(history(trainer, "geoattn/gamma")[2])
    assert found[0] > 0  # an estimate takes two batches
    assert found == pytest.approx([found[0]] * 3, rel=1e-3)
