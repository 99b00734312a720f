"""Lightning: the gradient of a step against the formula by hand, for every way in which a module may train."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.attention import capture
from geoattn.training.adapters import lightning_callback
from geoattn.training.interventions.edge_mask import EdgeMask
from geoattn.training.monitor import Monitor
from geoattn.training.regularisers.variance import VarianceRegulariser
from tests.contracts.attachments import traces
from tests.training.small_models import gradients, lvit

lightning = pytest.importorskip("lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(does not have many workers|logging interval|self.log).*"),
    pytest.mark.filterwarnings("ignore:.*(LeafSpec|treespec|isinstance).*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

IMAGES = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(3))
WAYS = ("self", "self.model", "configure_model", "manual")


def regulariser() -> VarianceRegulariser:
    return VarianceRegulariser("increase", a=50.0, gamma=3.0)


class Module(lightning.LightningModule):
    """A module that trains in one of the WAYS, with SGD of rate 1: one step shows the gradient."""

    def __init__(self, way: str, accumulation: int = 1) -> None:
        super().__init__()
        self.way, self.accumulation = way, accumulation
        self.automatic_optimization = way != "manual"
        self.model: Any = None
        if way != "configure_model":
            self.model = lvit()

    def configure_model(self) -> None:
        if self.model is None:
            self.model = lvit()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def training_step(self, x: Tensor, index: int) -> Any:
        if self.way == "nothing":
            return sum(p.square().sum() for p in self.parameters())
        loss = (self(x) if self.way == "self" else self.model(x)).square().mean()
        if self.automatic_optimization:
            return loss
        optimiser: Any = self.optimizers()
        if index % self.accumulation == 0:
            optimiser.zero_grad()
        self.manual_backward(loss / self.accumulation)
        if (index + 1) % self.accumulation == 0:
            optimiser.step()
        return None

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def fit(module: Any, accumulation: int, callback: Any, **more: Any) -> Any:
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback], **{"logger": False, **more},
        accumulate_grad_batches=accumulation if module.automatic_optimization else 1,
    )  # fmt: skip
    images: Any = list(IMAGES)
    trainer.fit(module, torch.utils.data.DataLoader(images, batch_size=8 // accumulation))
    return trainer


@pytest.mark.parametrize("accumulation", [1, 2, 4, 8])
@pytest.mark.parametrize("way", WAYS)
def test_the_gradient_is_that_of_the_formula(way: str, accumulation: int) -> None:
    module = Module(way, accumulation)
    fit(module, accumulation, lightning_callback(
        regulariser(), micro_batches=accumulation if way == "manual" else 1))  # fmt: skip
    model = lvit()
    total: Any = 0.0
    for micro in IMAGES.chunk(accumulation):
        with capture(model) as record:
            task = model(micro).square().mean()
        variance = torch.stack([call.attention().var((-2, -1), correction=0).mean() for call in record]).mean()
        total = total + (task + 3.0 * torch.exp(-50.0 * variance)) / accumulation
    start = [p.detach().clone() for p in model.parameters()]
    wanted = gradients(model, total)
    found = [one - after.detach() for one, after in zip(start, module.model.parameters(), strict=True)]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
    assert traces(module) == 0
    assert not {"training_step", "manual_backward", "__getstate__"} & set(vars(module))


def test_micro_batches_belong_to_manual_optimisation() -> None:
    with pytest.raises(GeoattnError, match="accumulate_grad_batches"):
        fit(Module("self"), 1, lightning_callback(regulariser(), micro_batches=2))


@pytest.mark.parametrize("kind", [regulariser(), EdgeMask(0.3), Monitor()])
def test_a_step_without_attention_is_said_once(kind: Any) -> None:
    with pytest.warns(GeoattnWarning, match="did nothing in step 0|saw no attention") as said:
        fit(Module("nothing"), 4, lightning_callback(kind))
    assert len([one for one in said if issubclass(one.category, GeoattnWarning)]) == 1


def test_the_monitor_reaches_a_logger_that_writes_between_its_samples() -> None:
    class Rows(lightning.pytorch.loggers.logger.DummyLogger):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[Any] = []

        def log_metrics(self, *_: Any, metrics: Any = None, **__: Any) -> None:
            self.rows.append(metrics)

    logger = Rows()
    fit(Module("self.model"), 8, lightning_callback(Monitor()), logger=logger, log_every_n_steps=1)
    assert logger.rows
    assert all(row["geoattn/variance"] > 0 and 0 < row["geoattn/monitor_cost"] < 1 for row in logger.rows)
