"""Regularisers in other people's loops: the Trainer of Hugging Face, and Lightning.

A plain loop needs no adapter: ``loss = criterion(model(x), y) + handle.penalty()``. The libraries are imported when a
callback is made, not before.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from geoattn.errors import GeoattnError
from geoattn.training.interventions import Intervention
from geoattn.training.processes import Processes
from geoattn.training.regulariser import Sink

__all__ = ["lightning_callback", "trainer_callback"]


def trainer_callback(*regularisers: Any, log: Sink | None = None) -> Any:
    """A callback for ``transformers.Trainer``: attached while it trains, figures in its ``log_history``.

    The model's own ``.loss`` gets the penalty, so label smoothing, which makes the Trainer compute another loss, is
    refused. Evaluation runs without gradients and keeps its loss. Needs ``accelerate``, as the Trainer does. The
    Trainer's own reporters run before a user's callback and do not see the figures: ``log`` is called with (step,
    figures) for each penalty, for example a `TensorBoard` or `WandB` of `geoattn.training.training_log`.

    ``Trainer(model, args, callbacks=[trainer_callback(VarianceRegulariser("increase"))], ...)``
    """
    from transformers import TrainerCallback

    _check(regularisers)

    class RegulariserCallback(TrainerCallback):
        """Attach at the beginning of training, remove at its end."""

        def __init__(self) -> None:
            self.handles: list[Any] = []

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            """Attach; samples go on where a resumed run stopped."""
            if args.label_smoothing_factor:
                raise GeoattnError(
                    "label smoothing makes the Trainer compute a loss of its own, without the penalty; set"
                    " label_smoothing_factor=0."
                )
            self._remove()
            self.handles = [r.attach(model, log=log, **_shared(r)) for r in _ordered(regularisers)]
            for handle in self.handles:
                handle.step = state.global_step * args.gradient_accumulation_steps - 1

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """Add the figures of the last step to a log of training."""
            if logs is not None and "loss" in logs:
                for handle in self.handles:
                    if handle.step >= 0:
                        figures = {f"geoattn/{name}": value for name, value in handle.figures().items()}
                        logs.update(figures)
                        state.log_history[-1].update(figures)  # a copy was made before we were called

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Leave the model as it was."""
            self._remove()

        def _remove(self) -> None:
            for handle in self.handles:
                handle.remove()
            self.handles = []

    return RegulariserCallback()


def lightning_callback(*regularisers: Any) -> Any:
    """A callback for Lightning: adds the penalty to what ``training_step`` returns, and logs the figures.

    ``training_step`` must return the loss, or a dictionary with one under ``loss`` (automatic optimisation).

    ``lightning.Trainer(callbacks=[lightning_callback(VarianceRegulariser("increase"))])``
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
            self.handles = handles = [r.attach(pl_module, **_shared(r)) for r in _ordered(regularisers)]
            step = pl_module.training_step

            def training_step(*args: Any, **kwargs: Any) -> Any:
                for handle in handles:
                    handle.restart()
                output = step(*args, **kwargs)
                for handle in handles:
                    handle.step = trainer.global_step  # whether training_step called the module itself or a part of it
                return _added(output, [handle.penalty() for handle in handles])

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
    if not regularisers or not all(hasattr(r, "attach") for r in regularisers):
        raise GeoattnError(f"expected regularisers, such as VarianceRegulariser('increase'); got {regularisers!r}.")


def _ordered(regularisers: Any) -> list[Any]:
    """Interventions last: then the others see what they leave."""
    return sorted(regularisers, key=lambda r: isinstance(r, Intervention))


def _shared(regulariser: Any) -> dict[str, Any]:
    """Under DDP averages go over the samples of all processes; interventions have none."""
    return {} if isinstance(regulariser, Intervention) else {"processes": Processes()}


def _added(output: Any, penalties: list[Tensor]) -> Any:
    if output is None:  # Lightning skips this step
        return None
    loss = output.get("loss") if isinstance(output, dict) else output
    if not isinstance(loss, Tensor):
        raise GeoattnError("training_step must return the loss, or a dictionary with one under 'loss'.")
    for penalty in penalties:
        loss = loss + penalty.to(loss.device, loss.dtype)
    return {**output, "loss": loss} if isinstance(output, dict) else loss
