"""Runs of the Trainer and of Lightning that stop and go on: gamma of a strength stays, and nothing stays behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from torch.nn import functional

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.models.lvit import LViT
from geoattn.training import RowEntropy, VarianceRegulariser
from geoattn.training.adapters import lightning_callback, trainer_callback
from geoattn.training.handle_states import load_states, save_states
from tests.training.small_models import SMALL
from tests.training.test_adapters import ROWS, bert


def trainer(folder: Path, callback: Any, steps: int = 24, **more: Any) -> Any:
    arguments = tf.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, max_steps=steps, report_to=[], logging_steps=1,
        disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False, **more,
    )  # fmt: skip
    return tf.Trainer(bert(), arguments, train_dataset=ROWS, callbacks=[callback])


def gammas(one: Any) -> dict[int, float]:
    return {row["step"]: row["geoattn/gamma"] for row in one.state.log_history if "geoattn/gamma" in row}


def test_the_trainer_goes_on_with_gamma(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    kept = {"save_strategy": "steps", "save_steps": 12}
    whole = trainer(tmp_path, trainer_callback(VarianceRegulariser("decrease", strength=0.1)), **kept)
    whole.train()
    again = trainer(tmp_path, trainer_callback(VarianceRegulariser("decrease", strength=0.1)), save_strategy="no")
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert gammas(whole)[24] > gammas(whole)[12] > 0  # it still grows over the first 200 steps
    assert gammas(again) == pytest.approx(gammas(whole), rel=1e-5)
    path = next((tmp_path / "checkpoint-12").glob("*regularisers*"))
    path.unlink()
    with pytest.warns(GeoattnWarning, match="sets gamma anew"):
        trainer(tmp_path, trainer_callback(VarianceRegulariser("decrease", strength=0.1)), save_strategy="no").train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-12")
        )


def test_a_checkpoint_of_another_folder_comes_first(tmp_path: Path) -> None:
    """The folder of the new run may hold the states of an older one at the same step."""
    pytest.importorskip("accelerate")
    named, own = tmp_path / "named" / "checkpoint-12", tmp_path / "own" / "checkpoint-12"
    kept = {"save_strategy": "steps", "save_steps": 12}
    trainer(named.parent, trainer_callback(VarianceRegulariser("decrease", strength=0.1)), 12, **kept).train()
    trainer(own.parent, trainer_callback(VarianceRegulariser("decrease", strength=0.4)), 12, **kept).train()

    def gamma(**more: Any) -> float:
        callback = trainer_callback(VarianceRegulariser("decrease", strength=0.1))
        one = trainer(own.parent, callback, 13, save_strategy="no", **more)
        one.train(resume_from_checkpoint=str(named))
        return gammas(one)[13]

    whole = trainer(tmp_path, trainer_callback(VarianceRegulariser("decrease", strength=0.1)), 13, save_strategy="no")
    whole.train()
    # the rates of 12 and 13 steps differ a little; the states of the other folder would give four times as much
    assert gamma(resume_from_checkpoint=str(named)) == pytest.approx(gammas(whole)[13], rel=1e-3)
    next(own.glob("*regularisers*")).unlink()
    with pytest.warns(GeoattnWarning, match="name it as resume_from_checkpoint of TrainingArguments"):
        gamma()


def test_other_regularisers_are_another_run(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    trainer(tmp_path, trainer_callback(VarianceRegulariser()), 2, save_strategy="steps", save_steps=1).train()
    two = trainer_callback(VarianceRegulariser(), RowEntropy())
    with pytest.raises(GeoattnError, match=re.escape("states of 1 regularisers, and this run has 2")):
        trainer(tmp_path, two, 2, save_strategy="no").train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_strength_is_a_ratio_to_the_task_alone(tmp_path: Path) -> None:
    """Another regulariser that is in the model's loss already does not count as its task."""
    pytest.importorskip("accelerate")
    found = []
    for others in ((), (RowEntropy("increase", gamma=50.0),)):
        callback = trainer_callback(*others, VarianceRegulariser("decrease", strength=0.1))
        one = trainer(tmp_path, callback, 3, save_strategy="no", learning_rate=1e-9)
        one.train()
        found.append(gammas(one)[3])
    assert found[0] > 0
    assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_remove_after_a_trainer_that_was_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")

    class Stop(tf.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    callback = trainer_callback(VarianceRegulariser())
    one = trainer(tmp_path, callback, save_strategy="no")
    one.add_callback(Stop())
    with pytest.raises(KeyboardInterrupt):
        one.train()
    callback.remove()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in one.model.modules())


class BrokenError(Exception):
    """Raised by a training step."""


def module(fails: bool = False) -> Any:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = LViT(SMALL)

        def training_step(self, batch: Any, place: int) -> Any:
            if fails and place:
                raise BrokenError
            x, y = batch
            return functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    return Module()


def fit(one: Any, epochs: int, *callbacks: Any, checkpoint: Any = None) -> float:
    """Gamma at the end."""
    lightning = pytest.importorskip("lightning")
    images = [(torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(i)), i % 10) for i in range(8)]
    fitter = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, callbacks=[lightning_callback(VarianceRegulariser(strength=0.1)), *callbacks],
    )  # fmt: skip
    fitter.fit(one, torch.utils.data.DataLoader(images, batch_size=4), ckpt_path=checkpoint)
    return float(fitter.callback_metrics["geoattn/gamma"])


@pytest.mark.filterwarnings("ignore")  # Lightning's own advice on workers and intervals
def test_lightning_goes_on_with_gamma(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Save(lightning.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 5:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    whole = fit(module(), 12, Save())
    assert whole > 0
    assert fit(module(), 12, checkpoint=tmp_path / "half.ckpt") == pytest.approx(whole, rel=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_lightning_leaves_nothing_behind_after_an_error() -> None:
    one = module(fails=True)
    with pytest.raises(BrokenError):
        fit(one, 1)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in one.modules())
    assert not {"training_step", "manual_backward"} & set(vars(one))


def test_states_of_another_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "states.safetensors"
    save_states(path, [{"strength": {"means": (torch.ones(2), torch.zeros(1)), "first": None}}, {}])
    (state, empty) = load_states(path)
    assert empty == {}
    assert state["strength"]["first"] is None
    torch.testing.assert_close(state["strength"]["means"][0], torch.ones(2))
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(GeoattnError, match="does not hold the states"):
        load_states(path)
