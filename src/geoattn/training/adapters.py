"""Regularisers in other people's loops: the Trainer of Hugging Face, and Lightning.

A plain loop needs no adapter: ``loss = criterion(model(x), y) + handle.penalty()``. The libraries are imported when a
callback is made, not before.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.training.accumulation import AccumulationWeight, micro_batches, refuse_compiled
from geoattn.training.attachments import Attachment, Sink
from geoattn.training.distributed import Processes

__all__ = ["lightning_callback", "trainer_callback"]


def trainer_callback(*regularisers: Any, log: Sink | None = None) -> Any:
    """A callback for ``transformers.Trainer``: attached while it trains, figures in its ``log_history``.

    Under gradient accumulation the penalties of the micro-batches of a step are averaged. The model's own ``.loss``
    gets the penalty, so label smoothing, which makes the Trainer compute another loss, is refused. Evaluation runs
    without gradients and keeps its loss. Needs ``accelerate``, as the Trainer does. The Trainer's own reporters run
    before a user's callback and do not see the figures: ``log`` is called with (step, figures) for each penalty, for
    example a `TensorBoard` or `WandB` of `geoattn.training.training_log`.

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

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            """Attach; samples go on where a resumed run stopped."""
            if args.label_smoothing_factor:
                raise GeoattnError(
                    "label smoothing makes the Trainer compute a loss of its own, without the penalty; set"
                    " label_smoothing_factor=0."
                )
            refuse_compiled(model, args.torch_compile, args.gradient_accumulation_steps)
            self._remove()
            self.weight = AccumulationWeight(model)
            self.handles = [r.attach(model, log=log, processes=Processes()) for r in _ordered(regularisers)]
            self.weight.handles = self.handles
            for handle in self.handles:
                handle.step = state.global_step * args.gradient_accumulation_steps - 1

        def on_step_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
            """Find how many micro-batches the step has."""
            if self.weight is not None:
                batches = len(train_dataloader) if hasattr(train_dataloader, "__len__") else None
                accumulation = args.gradient_accumulation_steps
                self.weight.micro_batches = micro_batches(batches, accumulation, state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """Add the figures of the last step to a log of training."""
            if logs is not None and "loss" in logs:
                for handle in self.handles:
                    if handle.step >= 0:
                        figures = {f"geoattn/{name}": value for name, value in handle.figures().items()}
                        logs.update(figures)
                        state.log_history[-1].update(figures)  # a copy was made before this callback is called

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Leave the model as it was."""
            self._remove()

        def _remove(self) -> None:
            for handle in self.handles:
                handle.remove()
            if self.weight is not None:
                self.weight.remove()
            self.handles, self.weight = [], None

    return RegulariserCallback()


def lightning_callback(*regularisers: Any) -> Any:
    """A callback for Lightning: adds the penalty to what ``training_step`` returns, and logs the figures.

    ``training_step`` must return the loss, or a dictionary with one under ``loss`` (automatic optimisation).

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

    class RegulariserCallback(Callback):
        """Wraps training_step while a fit runs."""

        def __init__(self) -> None:
            super().__init__()
            self.handles: list[Any] = []

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            """Attach, and put the penalty into training_step."""
            if not pl_module.automatic_optimization:
                raise GeoattnError("with manual optimisation attach the regulariser and add handle.penalty() yourself.")
            self.handles = handles = [r.attach(pl_module, processes=Processes()) for r in _ordered(regularisers)]
            step = pl_module.training_step

            def training_step(*args: Any, **kwargs: Any) -> Any:
                for handle in handles:
                    handle.restart()
                    handle.step = trainer.global_step - 1
                output = step(*args, **kwargs)
                for handle in handles:
                    handle.step = trainer.global_step  # whether training_step called the module itself or a part of it
                task = output.get("loss") if isinstance(output, dict) else output
                return _added(output, [handle.penalty(task) for handle in handles])

            pl_module.training_step = training_step

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Log the figures of the step."""
            for handle in self.handles:
                pl_module.log_dict({f"geoattn/{name}": value for name, value in handle.figures().items()})

        def teardown(self, trainer: Any, pl_module: Any, stage: Any = None) -> None:
            """Leave the module as it was, whatever happened."""
            for handle in self.handles:
                handle.remove()
            if self.handles:
                del pl_module.training_step
            self.handles = []

    return RegulariserCallback()


def _check(regularisers: Any) -> None:
    if not regularisers or not all(isinstance(r, Attachment) for r in regularisers):
        raise GeoattnError(f"expected regularisers, such as VarianceRegulariser('increase'); got {regularisers!r}.")


def _ordered(regularisers: Any) -> list[Any]:
    """Those that change attention last."""
    return sorted(regularisers, key=lambda r: r.changes_attention)


def _added(output: Any, penalties: list[Tensor]) -> Any:
    if output is None:  # Lightning skips this step
        return None
    loss = output.get("loss") if isinstance(output, dict) else output
    if not isinstance(loss, Tensor):
        raise GeoattnError("training_step must return the loss, or a dictionary with one under 'loss'.")
    for penalty in penalties:
        loss = loss + penalty.to(loss.device, loss.dtype)
    return {**output, "loss": loss} if isinstance(output, dict) else loss
