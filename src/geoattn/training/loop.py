"""The training loop: Adam on the cross entropy plus penalties, resumable to the bit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn.datasets.loader import load_data
from geoattn.models.loading import load_model
from geoattn.training.attachments import Sink
from geoattn.training.checkpoint import Position, load_checkpoint, save_checkpoint
from geoattn.training.distributed import Processes
from geoattn.training.inputs import Inputs, image_inputs, make_tokenizer, text_inputs
from geoattn.training.monitor import Monitor, MonitorHandle
from geoattn.training.not_finite import find_culprit
from geoattn.training.recipe import Recipe
from geoattn.training.run_folder import alone_in
from geoattn.training.training_log import JsonLines

__all__ = ["Trained", "evaluate", "train"]

_VOCABULARY = 8192
_EVALUATION_BATCH = 256
Progress = Callable[[int, int], object]
Probe = Callable[[nn.Module, Inputs], dict[str, Any]]
Prepared = tuple[nn.Module, Inputs, Inputs | None, Inputs]


@dataclass(frozen=True, eq=False, repr=False)
class Trained(Displayed):
    """A finished run: the model in evaluation mode, accuracies, and one row of ``history`` per epoch.

    ``running_accuracy`` in a row is that of the training batches of the epoch, in training mode, before the step on
    each batch.

    Examples
    --------
    >>> from geoattn.training import Recipe, train
    >>> result = train(Recipe("digits", epochs=1, limit=20, test_limit=10, changes={"depth": 1}))
    >>> len(result.history)
    1
    """

    recipe: Recipe
    model: nn.Module
    train_accuracy: float
    test_accuracy: float
    history: tuple[dict[str, Any], ...]
    steps: int
    stopped_early: bool


def train(
    recipe: Recipe,
    out: str | os.PathLike[str] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    checkpoint_every: int | None = None,
    log: Sink | None = None,
    progress: Progress | None = None,
    probe: Probe | None = None,
    model: nn.Module | None = None,
    tokenizer: Any = None,
) -> Trained:
    """Train the model of the paper on a data set, by a recipe.

    The loss is the cross entropy plus the penalties of the recipe's regularisers. Rows are shuffled anew each epoch.
    The weights depend on the recipe alone (and on machine, torch and its number of threads): random numbers come from
    ``recipe.seed``, and those of the caller are left as they were.

    Parameters
    ----------
    out
        Folder for ``checkpoint.safetensors``, ``log.jsonl`` and ``recipe.json``. If a run of the same recipe was cut
        short there, it goes on from its last checkpoint and ends with the same weights, bit for bit. A run of another
        recipe is an error.
    root
        Folder of local data sets; see `geoattn.load_data`.
    checkpoint_every
        Steps between checkpoints; one is written after each epoch in any case.
    log
        Called with (step, figures) once per epoch and for each step that is monitored.
    progress
        Called with (steps done, steps in all).
    probe
        Called with the model, in evaluation mode, and the test rows: before the first step, which makes a row of
        ``history`` for epoch 0, and after each epoch. What it returns joins that row.
    model, tokenizer
        Trained in place of the recipe's own, from the weights that it has; its classes must be those of the data. A
        text model may bring its tokenizer of transformers; without one it is made from the training texts.

    Notes
    -----
    Where ``torch.distributed`` was started (see `geoattn.training.distributed.joined`, which `geoattn train` uses under
    torchrun) all processes share each batch and end with the same weights: those of one process with the same batch, up
    to the order of sums, and to dropout, which each process draws for itself. The first one writes and logs.

    A loss that is not finite stops the run with the step and the layer it came from; the last checkpoint stays.

    Examples
    --------
    >>> from geoattn.training import train
    >>> from geoattn.training import Recipe
    >>> recipe = Recipe("digits", epochs=1, limit=64, test_limit=32, changes={"depth": 1})
    >>> trained = train(recipe)
    >>> trained.steps, len(trained.history)
    (1, 1)
    """
    recipe = recipe.filled()
    if checkpoint_every is not None and checkpoint_every < 1:
        raise GeoattnError(f"checkpoint_every must be at least 1; got {checkpoint_every}.")
    with torch.random.fork_rng(), ExitStack() as attached:
        torch.manual_seed(recipe.seed)
        made = _prepare(recipe, root, model, tokenizer)
        return _Run(recipe, made, out, device, checkpoint_every, log, progress, probe, attached).finish()


class _Run:
    def __init__(
        self, recipe: Recipe, made: Prepared, out: Any, device: str, every: int | None, log: Sink | None,
        progress: Progress | None, probe: Probe | None, attached: ExitStack,
    ) -> None:  # fmt: skip
        self.probe, self.processes = probe, Processes()
        first = self.processes.rank == 0
        self.recipe, self.device, self.every, self.progress = recipe, torch.device(device), every, progress
        self.model, self.train_rows, self.held_out, self.test = made
        self.model.to(self.device)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=recipe.rate or 0.0, fused=True)
        self.position = Position()
        self.parallel: Any = self.model
        if self.processes.count > 1:
            self.parallel = nn.parallel.DistributedDataParallel(self.model)
            torch.manual_seed(recipe.seed + 1_000_003 * self.processes.rank)  # each its own dropout
        self.logs: list[Sink] = [] if log is None or not first else [log]
        self.checkpoint = None if out is None else Path(out) / "checkpoint.safetensors"
        if out is not None:
            if first:
                attached.enter_context(alone_in(out))
            if self.checkpoint is not None and self.checkpoint.exists():
                self.position = load_checkpoint(self.checkpoint, self.model, self.adam, recipe.key, self.processes.rank)
            if first:
                lines = JsonLines(Path(out) / "log.jsonl")
                lines.rewind(self.position.step or -1)
                self.logs.append(lines)
                about = (json.dumps(recipe.as_dict(), indent=1) + "\n").encode()
                write_atomically(Path(out) / "recipe.json", lambda file: file.write(about))
        built = recipe.build()
        built.sort(key=lambda attachment: attachment.changes_attention)
        self.handles = [
            attached.enter_context(attachment.attach(self.model, processes=self.processes)) for attachment in built
        ]
        for handle, state in zip(self._regularised(), self.position.handles, strict=False):
            handle.load_state(state)
        self.monitor: MonitorHandle | None = None
        if recipe.monitor_every is not None:
            watcher = Monitor(every=recipe.monitor_every, seed=recipe.seed)
            self.monitor = watcher.attach(self.model, processes=self.processes)
            attached.callback(self.monitor.remove)

    def _regularised(self) -> list[Any]:
        """The handles that keep something from their first steps."""
        return [handle for handle in self.handles if hasattr(handle, "load_state")]

    def finish(self) -> Trained:
        recipe, position = self.recipe, self.position
        assert recipe.epochs is not None
        if self.probe is not None and position.step == 0:
            position.history.append({"epoch": 0, **self._test_row()})
        while position.epoch < recipe.epochs and not position.stopped:
            self._epoch()
        for handle in self.handles:
            handle.remove()
        train_accuracy = evaluate(self.model, self.train_rows, self.device, self.processes)
        return Trained(
            recipe=recipe, model=self.model.eval(), train_accuracy=train_accuracy,
            test_accuracy=evaluate(self.model, self.test, self.device, self.processes), history=tuple(position.history),
            steps=position.step, stopped_early=position.stopped,
        )  # fmt: skip

    def _epoch(self) -> None:
        recipe, position = self.recipe, self.position
        assert recipe.batch is not None
        assert recipe.epochs is not None
        order = np.random.default_rng([recipe.seed, position.epoch]).permutation(len(self.train_rows))
        batches = torch.from_numpy(order).split(recipe.batch)
        total = len(batches) * recipe.epochs
        self.model.train()
        while position.batch < len(batches):
            self._step(batches[position.batch])
            position.batch += 1
            position.step += 1
            if self.progress is not None:
                self.progress(position.step, total)
            if self.every is not None and position.step % self.every == 0 and position.batch < len(batches):
                self._save()
        self._end_epoch()

    def _step(self, batch: Tensor) -> None:
        position, rows = self.position, self.processes.share(batch)
        for handle in (*self.handles, *([self.monitor] if self.monitor else [])):
            handle.step = position.step - 1  # samples follow the step, whatever else ran the model
        before = torch.get_rng_state()
        labels = self.train_rows.labels[rows].to(self.device)
        share = len(rows) / len(batch)
        logits = self.train_rows.forward(self.parallel, rows, self.device, batch)
        task = functional.cross_entropy(logits, labels)
        mean = task.detach() if share == 1 else self.processes.total(share * task)
        value, penalty = float(mean), None
        if np.isfinite(value) and self.handles:
            penalty = torch.stack([h.penalty(task).to(task.dtype) for h in self.handles]).sum()
            value += float(penalty.detach())
        if not np.isfinite(value):
            torch.set_rng_state(before)
            raise GeoattnError(self._blame(rows, value))
        right = self.processes.total((logits.detach().argmax(-1) == labels).sum())
        # gradients are averaged over the processes: the weight makes that the mean over the rows of all
        weighted = task if share == 1 else task * (share * self.processes.count)
        self.adam.zero_grad()
        (weighted if penalty is None else weighted + penalty).backward()
        if self.monitor is not None:
            figures = self.monitor.observe(torch.tensor(value))
            if figures:
                self._log(figures, 1)
        self.adam.step()
        parts = {"loss": float(mean), "penalty": 0.0 if penalty is None else float(penalty.detach())}
        for name, part in parts.items():
            position.sums[name] = position.sums.get(name, 0.0) + part * len(batch)
        position.sums["running_accuracy"] = position.sums.get("running_accuracy", 0.0) + float(right)

    def _end_epoch(self) -> None:
        recipe, position = self.recipe, self.position
        rows = len(self.train_rows)
        row: dict[str, Any] = {"epoch": position.epoch + 1, **{k: v / rows for k, v in position.sums.items()}}
        for handle in self.handles:
            row.update({k: v for k, v in handle.figures().items() if k != "penalty"})
        row.update(self._test_row())
        if self.held_out is not None:
            row["validation_accuracy"] = evaluate(self.model, self.held_out, self.device, self.processes)
            position.stopped = row["validation_accuracy"] >= (recipe.stop_at or 2.0)
        position.history.append(row)
        position.epoch, position.batch, position.sums = position.epoch + 1, 0, {}
        self._log(row)
        self._save()

    def _test_row(self) -> dict[str, Any]:
        """Accuracy on the test rows, and what the probe sees in them."""
        found: dict[str, Any] = {"test_accuracy": evaluate(self.model, self.test, self.device, self.processes)}
        if self.probe is not None:
            self.model.eval()
            found.update(self.probe(self.model, self.test))
            self.model.train()
        return found

    def _save(self) -> None:
        if self.checkpoint is not None:
            states = self.processes.gather(torch.get_rng_state())
            self.position.handles = [handle.state() for handle in self._regularised()]
            if self.processes.rank == 0:
                save_checkpoint(self.checkpoint, self.model, self.adam, self.position, self.recipe.key, states)

    def _log(self, figures: dict[str, Any], running: int = 0) -> None:
        """``step`` in a log is the number of steps done, the one that is running included."""
        for log in self.logs:
            log(self.position.step + running, figures)

    def _blame(self, rows: Tensor, value: float) -> str:
        """Where the loss went wrong: a weight, or the first layer with an output that is not finite."""
        culprit = find_culprit(self.model, self.train_rows, rows, self.device)
        kept = self.checkpoint is not None and self.checkpoint.exists()
        left = f"the last good checkpoint is {self.checkpoint}" if kept else "no checkpoint was written yet"
        at = f"epoch {self.position.epoch + 1}, step {self.position.step}"
        return f"the loss is {value} at {at}: {culprit}; {left}. Lower the learning rate or gamma."


@torch.no_grad()
def evaluate(model: nn.Module, data: Inputs, device: Any = "cpu", processes: Processes | None = None) -> float:
    """Share of rows whose most probable class is right, in evaluation mode; the mode is put back.

    Several ``processes`` divide the batches among them, and all get the answer.
    """
    training = model.training
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    rank, count = (0, 1) if processes is None else (processes.rank, processes.count)
    for rows in torch.arange(len(data)).split(_EVALUATION_BATCH)[rank::count]:
        guess = data.forward(model, rows, device).argmax(-1).cpu()
        right += int((guess == data.labels[rows]).sum())
    model.train(training)
    return int(right if processes is None else processes.total(right)) / len(data)


def _prepare(recipe: Recipe, root: Any, model: nn.Module | None, tokenizer: Any) -> Prepared:
    """Model, training rows, held-out rows (with early stopping) and test rows."""
    training = load_data(recipe.data, root, "train", recipe.limit, seed=recipe.data_seed)
    test = load_data(recipe.data, root, "test", recipe.test_limit, seed=recipe.data_seed)
    held = None
    if recipe.early_stopping:
        shuffled = np.random.default_rng([recipe.data_seed, 1]).permutation(len(training))
        cut = max(1, len(training) // 10)
        training, held = training.subset(np.sort(shuffled[cut:])), training.subset(np.sort(shuffled[:cut]))
    classes = len(training.classes)
    if recipe.is_text:
        assert training.texts is not None
        tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer) or make_tokenizer(training.texts, _VOCABULARY)
        changes = {"vocab_size": tokenizer.get_vocab_size(), **recipe.changes}
        convert: Any = lambda data: text_inputs(data, tokenizer, recipe.length)  # noqa: E731
    else:
        changes, convert = recipe.changes, image_inputs
    if model is None:
        model = load_model(recipe.model, weights="random", classes=classes, seed=recipe.seed, **changes)
    return model, convert(training), None if held is None else convert(held), convert(test)
