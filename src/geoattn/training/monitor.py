"""A monitor of training: it measures curvature, variance, entropy and the PL ratio, and changes nothing."""

from __future__ import annotations

import time
import warnings
from typing import Any, no_type_check

import numpy as np
import torch
from torch import nn

from geoattn._core.arguments import read_count
from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.attention.record import Record
from geoattn.attention.selection import Layers
from geoattn.attention.torch_compile import plain_python
from geoattn.curvature.layout import read_edges
from geoattn.curvature.loss import edge_curvature
from geoattn.graph.convention import Convention
from geoattn.training.attachments import Attachment, CapturingHandle, Sink, register_attachment
from geoattn.training.distributed import Processes, mean_over_samples, sharing
from geoattn.training.regularisers.contract import layer_name
from geoattn.training.regularisers.curvature import draw_maps
from geoattn.training.regularisers.entropy import call_entropy
from geoattn.training.variance_from_maps import call_variance

__all__ = ["Monitor", "MonitorHandle"]


@register_attachment("monitor")
class Monitor(Attachment):
    r"""Measures every ``every``-th training step and changes neither the loss, nor the model, nor a random state.

    Per layer: ``variance``, ``entropy`` (nats) and ``curvature`` (mean over a sample drawn by ``seed`` and step, with
    ``curvature_min``, ``negative_share`` and ``distance_to_one`` over all layers). After the backward pass
    ``handle.observe(loss)`` adds ``pl_ratio``, :math:`|\nabla L|^2 / L`: the Polyak-Lojasiewicz condition of Theorem
    4.1 asks that it stays above a positive constant. The gradient is that of the loss that was trained on.

    A measured step takes about a sixth longer for a ViT-S/16 or a GPT-2-shaped model, so one in 100 costs little;
    ``handle.cost()`` says what it is for your model, and the callbacks log it.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import Monitor
    >>> model = geoattn.models.LViT()
    >>> with Monitor().attach(model) as handle:
    ...     loss = model(torch.rand(2, 1, 28, 28)).square().mean()
    ...     loss.backward()
    ...     figures = handle.observe(loss)
    >>> sorted(name for name in figures if "/" not in name)
    ['curvature', 'curvature_min', 'distance_to_one', 'entropy', 'loss', 'negative_share', 'pl_ratio', 'variance']
    """

    def __init__(
        self, *, every: Any = 100, convention: Any = "markov", maps: Any = 16, edges: Any = 32, seed: Any = 0
    ) -> None:
        self.every = read_count("every", every, least=1)
        self.convention = Convention.of(convention)
        self.maps = None if maps == "all" else read_count("maps", maps, least=1, instead="'all' or ")
        read_edges(edges)
        self.edges = edges
        self.seed = read_count("seed", seed, least=0)

    def attach(
        self,
        model: nn.Module,
        *,
        layers: Layers = None,
        log: Sink | None = None,
        processes: Processes | None = None,
    ) -> MonitorHandle:
        """Measure ``model`` from now on; ``log`` is called with (step, figures) by `MonitorHandle.observe`."""
        return MonitorHandle(self, model, layers, log, processes)

    @torch.no_grad()
    def measure(self, record: Record, step: int) -> dict[str, float]:
        """Variance, entropy and curvature of the attention in a record."""
        figures: dict[str, float] = {}
        per_layer: dict[str, list[float]] = {"variance": [], "entropy": []}
        names: dict[str, None] = {}
        for call in record:
            name = layer_name(call.name, call.visit, names)
            names[name] = None
            for kind, value in (("variance", mean_over_samples(call_variance(call))), ("entropy", call_entropy(call))):
                figures[f"{kind}/{name}"] = float(value)
                per_layer[kind].append(float(value))
        figures.update({kind: float(np.mean(values)) for kind, values in per_layer.items()})
        try:
            groups = draw_maps(record, self.maps, self.seed, step)
        except GeoattnError:  # no self-attention: nothing to draw
            return figures
        everything: list[np.ndarray] = []
        for n, group in groups.items():
            for k, (name, maps, valid) in enumerate(group):
                if not bool(maps.isfinite().all()):  # a monitor changes nothing: the loop says what is not finite
                    figures[f"curvature/{name}"] = float("nan")
                    everything.append(np.full(1, np.nan))
                    continue
                kappa = edge_curvature(
                    maps, self.convention, edges=self.edges, mask=None if bool(valid.all()) else valid,
                    seed=(self.seed * 1_000_003 + step * 8191 + n * 31 + k) % 2**31,
                )  # fmt: skip
                values = kappa.double().cpu().numpy()
                everything.append(values)
                figures[f"curvature/{name}"] = float(values.mean()) if len(values) else float("nan")
        kappa = np.concatenate(everything)
        if len(kappa):
            figures.update(
                curvature=float(kappa.mean()), curvature_min=float(kappa.min()),
                negative_share=float((kappa < 0).mean()), distance_to_one=float((1 - kappa).mean()),
            )  # fmt: skip
        return figures


class MonitorHandle(CapturingHandle):
    """A monitor at work: figures are taken in the forward pass, so that nothing of the step is kept."""

    def __init__(
        self, monitor: Monitor, model: nn.Module, layers: Layers, log: Sink | None, processes: Processes | None
    ) -> None:
        self.monitor = monitor
        self._figures: dict[str, float] | None = None
        self._warned = self._seen = False
        self._last: dict[str, float] = {}
        self._spent, self._since = 0.0, time.perf_counter()
        super().__init__(model, layers, log, processes)

    @no_type_check
    @plain_python
    def _after(self, _model, _args, output):
        output = super()._after(_model, _args, output)
        if self._open and self._record:
            self._measure()
            self._seen = True
        self._record.clear()
        return output

    def cost(self) -> float:
        """Share of the time since the monitor was attached that its measurements took: 0.01 is one percent.

        It leaves out what the open capture adds to each step.
        """
        return self._spent / max(time.perf_counter() - self._since, 1e-9)

    def last_figures(self) -> dict[str, float]:
        """Figures of the last step that was measured, with ``monitor_cost``; empty before the first."""
        self._measure()
        return {**self._last, "monitor_cost": self.cost()} if self._last else {}

    def restart(self) -> None:
        """Forget the last step."""
        super().restart()
        self._figures, self._seen = None, False

    def _measure(self) -> dict[str, float] | None:
        """The figures of this step, taken when first asked for; None between samples, and when nothing ran."""
        self._asked = True
        if self._figures is None and self._open and self.step % self.monitor.every == 0 and self._record:
            start = time.perf_counter()
            with sharing(self.processes):
                self._figures = self._last = self.monitor.measure(self._record, self.step)
            self._spent += time.perf_counter() - start
            self._record.clear()
        elif self._figures is None and not (self._seen or self._record or self._warned or self._is_evaluation()):
            self._warned = True
            warnings.warn(
                f"Monitor saw no attention of {type(self.model).__name__} in this step, so it has no figures; run the"
                " model that it is attached to, in training mode and with gradients on.", GeoattnWarning, stacklevel=3,
            )  # fmt: skip
        return self._figures

    def _is_evaluation(self) -> bool:
        """Whether a model that has trained is being evaluated: then there is nothing to measure."""
        return self.step >= 0 and not self.model.training

    def observe(self, loss: Any) -> dict[str, float]:
        """Call after the backward pass: figures of this step with the loss and the PL ratio; empty between samples."""
        measured = self._measure()
        if measured is None:
            return {}
        value = float(loss.detach())
        squared = sum(float(p.grad.double().square().sum()) for p in self.model.parameters() if p.grad is not None)
        ratio = squared / value if value > 0 else float("nan")
        figures = {**measured, "loss": value, "pl_ratio": ratio}
        if self._log is not None:
            self._log(self.step, figures)
        return figures

    def figures(self) -> dict[str, float]:
        """Figures of the last forward pass that was measured; empty between samples."""
        measured = self._measure()
        return {} if measured is None else dict(measured)

    def penalty(self, task: Any = None) -> Any:
        """Zero: a monitor adds nothing to the loss. In a loop that calls a part of the model it measures here."""
        self._measure()
        return super().penalty()
