"""Regularisers in other people's loops: the Trainer of Hugging Face, and Lightning.

A plain loop needs no adapter: ``loss = criterion(model(x), y) + handle.penalty()``. The libraries are imported when a
callback is made, not before.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from geoattn._core.arguments import read_count
from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.training.accumulation import AccumulationWeight, micro_batches, refuse_compiled
from geoattn.training.attachments import Attachment, Sink
from geoattn.training.distributed import Processes
from geoattn.training.handle_states import load_states, save_states
from geoattn.training.regularisers.contract import RegulariserHandle
from geoattn.training.trainer_reports import reporters

__all__ = ["lightning_callback", "trainer_callback"]


def trainer_callback(*regularisers: Any, log: Sink | None = None) -> Any:
    """A callback for ``transformers.Trainer``: attached while it trains, figures in all logs of the Trainer.

    Under gradient accumulation the penalties of the micro-batches of a step are averaged. The model's own ``.loss``
    gets the penalty, so label smoothing, which makes the Trainer compute another loss, is refused; a loss that is
    computed outside of the model gets nothing, and a warning says so. Evaluation keeps its loss. Needs ``accelerate``,
    as the Trainer does. Figures are in ``log_history``, and go to TensorBoard, Weights & Biases and MLflow as
    ``report_to`` says. ``log`` is called with (step, figures) for each penalty, beside these. Each checkpoint gets a
    file with what the first steps set, and a resumed run goes on from it. A step is a forward pass: under accumulation
    it is a micro-batch. After an error or Ctrl-C call ``.remove()`` of the callback before the model is used otherwise.

    ``Trainer(model, args, callbacks=[trainer_callback(VarianceRegulariser("increase"))], ...)``

    Examples
    --------
    >>> import geoattn as ga
    >>> callback = ga.trainer_callback(ga.VarianceRegulariser("increase"))
    >>> type(callback).__name__
    'RegulariserCallback'
    """
    from transformers import TrainerCallback

    _check(regularisers)

    class RegulariserCallback(TrainerCallback):
        """Attach at the beginning of training, remove at its end."""

        def __init__(self) -> None:
            self.handles: list[Any] = []
            self.weight: AccumulationWeight | None = None
            self.sinks: list[Sink] = []
            self.idle = _Idle()

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            """Attach; samples go on where a resumed run stopped."""
            if args.label_smoothing_factor:
                raise GeoattnError(
                    "label smoothing makes the Trainer compute a loss of its own, without the penalty; set"
                    " label_smoothing_factor=0."
                )
            refuse_compiled(model, args.torch_compile, args.gradient_accumulation_steps)
            self.remove()
            self.sinks = reporters(args) if state.is_world_process_zero else []
            self.weight = AccumulationWeight(model)
            self.handles = [r.attach(model, log=log, processes=Processes()) for r in _ordered(regularisers)]
            self.weight.handles = self.handles
            for handle in self.handles:
                handle.step = state.global_step * args.gradient_accumulation_steps - 1
            if state.global_step:
                _resume(self.handles, _state_files(args, state)[::-1])  # the checkpoint that is named comes first

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Keep beside the checkpoint what the first steps set, such as gamma of a strength."""
            path = _state_files(args, state)[0]
            if state.is_world_process_zero and path.parent.is_dir():
                save_states(path, [handle.state() for handle in self.handles if isinstance(handle, RegulariserHandle)])

        def on_step_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
            """Find how many micro-batches the step has."""
            if self.weight is not None:
                batches = len(train_dataloader) if hasattr(train_dataloader, "__len__") else None
                accumulation = args.gradient_accumulation_steps
                self.weight.micro_batches = micro_batches(batches, accumulation, state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Say so when something had nothing to act on."""
            for handle in self.handles:
                if handle.saw_nothing():
                    self.idle.say(
                        handle, "the model returned no .loss (a loss that is computed outside of the model does not"
                        " get the penalty), or ran no attention"
                    )  # fmt: skip

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """Add the figures of the last step to a log of training."""
            if logs is None or "loss" not in logs:
                return
            figures = _named(self.handles)
            logs.update(figures)
            state.log_history[-1].update(figures)  # a copy was made before this callback is called
            for sink in self.sinks if figures else []:
                sink(state.global_step, figures)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Leave the model as it was."""
            self.remove()

        def remove(self) -> None:
            """Leave the model as it was, after a training that was interrupted: the Trainer does not say so."""
            for handle in self.handles:
                handle.remove()
            if self.weight is not None:
                self.weight.remove()
            self.handles, self.weight = [], None

    return RegulariserCallback()


def lightning_callback(*regularisers: Any, micro_batches: Any = 1) -> Any:
    """A callback for Lightning: adds the penalty to the loss of each training step, and logs the figures.

    With automatic optimisation the penalty joins what ``training_step`` returns: the loss, or a dictionary with one
    under ``loss``. With manual optimisation it joins the loss that ``self.manual_backward`` is given. A loop of that
    kind that accumulates gradients divides its loss by the number of micro-batches; give that number here, and the
    penalty is divided by it too. The parts of the module that a step runs do not matter.

    ``lightning.Trainer(callbacks=[lightning_callback(VarianceRegulariser("increase"))])``

    Examples
    --------
    >>> import geoattn as ga
    >>> callback = ga.lightning_callback(ga.VarianceRegulariser("increase"), ga.Monitor())
    >>> type(callback).__name__
    'RegulariserCallback'
    """
    try:
        from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise GeoattnError("Lightning is not installed: pip install lightning") from None

    _check(regularisers)
    share = 1 / read_count("micro_batches", micro_batches, least=1)

    class RegulariserCallback(Callback):
        """Wraps training_step and manual_backward while a fit runs."""

        def __init__(self) -> None:
            super().__init__()
            self.handles: list[Any] = []
            self.states: list[dict[str, Any]] = []  # of the checkpoint that the fit goes on from
            self.active: list[Any] = []  # handles that had something to act on in this step
            self.idle = _Idle()

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            """Attach, and put the penalty into the loss."""
            if pl_module.automatic_optimization and share != 1:
                raise GeoattnError(
                    "micro_batches is for manual optimisation; with automatic optimisation Lightning divides the loss"
                    " itself: set accumulate_grad_batches of its Trainer."
                )
            self.handles = handles = [r.attach(pl_module, processes=Processes()) for r in _ordered(regularisers)]
            _go_on(handles, self.states)
            self.states = []
            step, backward = pl_module.training_step, pl_module.manual_backward

            def training_step(*args: Any, **kwargs: Any) -> Any:
                for handle in handles:
                    handle.restart()
                    handle.step = trainer.global_step - 1
                self.active = []
                output = step(*args, **kwargs)
                for handle in handles:
                    handle.step = trainer.global_step  # whether training_step called the module itself or a part of it
                if output is not None and pl_module.automatic_optimization:
                    output = self._added(output)
                for handle in handles:
                    if handle not in self.active and handle.saw_nothing():
                        self.idle.say(handle, "training_step ran no attention, or took no backward pass")
                return output

            def manual_backward(loss: Any, *args: Any, **kwargs: Any) -> Any:
                return backward(loss + share * self._penalty(loss / share), *args, **kwargs)

            pl_module.training_step = training_step
            if not pl_module.automatic_optimization:
                pl_module.manual_backward = manual_backward

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Log the figures of the step."""
            pl_module.log_dict(_named(self.handles))

        def state_dict(self) -> dict[str, Any]:
            """For a checkpoint: what the first steps set, such as gamma of a strength."""
            return {"handles": [handle.state() for handle in self.handles if isinstance(handle, RegulariserHandle)]}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Of a checkpoint; the handles are there when the fit starts."""
            self.states = list(state_dict["handles"])

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            """Lightning does not tear down after an error."""
            self.teardown(trainer, pl_module)

        def teardown(self, trainer: Any, pl_module: Any, stage: Any = None) -> None:
            """Leave the module as it was, whatever happened."""
            for handle in self.handles:
                handle.remove()
            for name in ("training_step", "manual_backward") if self.handles else ():
                vars(pl_module).pop(name, None)
            self.handles, self.active = [], []

        def _penalty(self, task: Tensor) -> Tensor:
            """The sum of the penalties of what ran since the last one; a model may have some in its loss already."""
            total = task.new_zeros(())
            for handle in self.handles:
                if handle.is_pending():
                    total = total + handle.penalty(task).to(task.device, task.dtype)
                    self.active.append(handle)
            return total

        def _added(self, output: Any) -> Any:
            loss = output.get("loss") if isinstance(output, dict) else output
            if not isinstance(loss, Tensor):
                raise GeoattnError("training_step must return the loss, or a dictionary with one under 'loss'.")
            loss = loss + self._penalty(loss)
            return {**output, "loss": loss} if isinstance(output, dict) else loss

    return RegulariserCallback()


def _state_files(args: Any, state: Any) -> list[Path]:
    """Where the states of this step are written, and where else they may lie when a run resumes."""
    places = [Path(args.output_dir, f"checkpoint-{state.global_step}")]
    if isinstance(args.resume_from_checkpoint, str):
        places.append(Path(args.resume_from_checkpoint))
    return [place / "geoattn-regularisers.safetensors" for place in places]


def _resume(handles: list[Any], files: list[Path]) -> None:
    found = next((file for file in files if file.is_file()), None)
    if found is not None:
        _go_on(handles, load_states(found))
    elif any(isinstance(h, RegulariserHandle) and h.calibration is not None for h in handles):
        warnings.warn(
            f"the run resumes, and {files[-1]} is not there: strength= sets gamma anew, from 0. If the checkpoint is in"
            " another folder than output_dir, name it as resume_from_checkpoint of TrainingArguments too.",
            GeoattnWarning, stacklevel=4,
        )  # fmt: skip


def _go_on(handles: list[Any], states: list[dict[str, Any]]) -> None:
    """Give each regulariser the state that it had; another list of regularisers is another run."""
    mine = [handle for handle in handles if isinstance(handle, RegulariserHandle)]
    if states and len(states) != len(mine):
        raise GeoattnError(
            f"the checkpoint has the states of {len(states)} regularisers, and this run has {len(mine)}; resume with"
            " the same ones."
        )
    for handle, state in zip(mine, states, strict=False):
        handle.load_state(state)


class _Idle:
    """Says once for each attachment that it had nothing to act on in a step."""

    def __init__(self) -> None:
        self._said: set[int] = set()

    def say(self, handle: Any, reason: str) -> None:
        if id(handle) not in self._said:
            self._said.add(id(handle))
            handle.told = True
            what = type(getattr(handle, "regulariser", None) or getattr(handle, "intervention", handle)).__name__
            warnings.warn(
                f"{what} did nothing in step {max(handle.step, 0)} of {type(handle.model).__name__}: {reason}.",
                GeoattnWarning, stacklevel=4,
            )  # fmt: skip


def _named(handles: list[Any]) -> dict[str, float]:
    """Figures as they appear in a log."""
    return {f"geoattn/{name}": value for handle in handles for name, value in handle.last_figures().items()}


def _check(regularisers: Any) -> None:
    if not regularisers or not all(isinstance(r, Attachment) for r in regularisers):
        raise GeoattnError(f"expected regularisers, such as VarianceRegulariser('increase'); got {regularisers!r}.")


def _ordered(regularisers: Any) -> list[Any]:
    """Those that change attention last."""
    return sorted(regularisers, key=lambda r: r.changes_attention)
