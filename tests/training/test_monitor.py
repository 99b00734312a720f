"""The monitor in loops that call the model itself, a part of it, or something else."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from geoattn._core.errors import GeoattnWarning
from geoattn.models.lvit import LViT
from geoattn.training.adapters import lightning_callback
from geoattn.training.monitor import Monitor
from tests.training.small_models import SMALL


class Whole(torch.nn.Module):
    """A model whose loop may call a part only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = LViT(SMALL)

    def forward(self, x: Any) -> Any:
        return self.net(x)


@pytest.mark.parametrize("every", [1, 2])
def test_a_loop_that_calls_a_part_has_the_same_figures(every: int) -> None:
    images = torch.rand(3, 4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    logs = []
    for part in (False, True):
        model = Whole()
        with Monitor(every=every).attach(model) as handle:
            steps = []
            for x in images:
                loss = (model.net(x) if part else model(x)).square().mean()
                loss.backward()
                steps.append(handle.observe(loss))
            logs.append(steps)
    assert [bool(figures) for figures in logs[0]] == [step % every == 0 for step in range(3)]
    for whole, part in zip(*logs, strict=True):
        assert {k.replace("net.", ""): v for k, v in whole.items()} == pytest.approx(
            {k.replace("net.", ""): v for k, v in part.items()}
        )


def test_evaluation_of_a_part_keeps_one_pass_only() -> None:
    model = Whole()
    with Monitor().attach(model) as handle, torch.no_grad():
        for _ in range(5):
            model.net(torch.rand(2, 1, 8, 8))
        assert len(handle._record) == 2  # layers of one pass


def test_a_step_without_attention_is_said_once() -> None:
    model = Whole()
    with Monitor().attach(model) as handle:
        loss = model.net.mlp_head(torch.rand(2, 16)).square().mean()
        with pytest.warns(GeoattnWarning, match="no attention of Whole"):
            assert handle.observe(loss) == {}
        assert handle.observe(loss) == {}  # a second warning would be an error here


@pytest.mark.filterwarnings("ignore")  # Lightning's own advice on workers and intervals
@pytest.mark.parametrize("whole", [True, False])
def test_lightning_logs_the_figures(whole: bool) -> None:
    lightning = pytest.importorskip("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = LViT(SMALL)

        def forward(self, x: Any) -> Any:
            return self.model(x)

        def training_step(self, batch: Any, _: int) -> Any:
            return (self(batch) if whole else self.model(batch)).square().mean()

        def validation_step(self, batch: Any, _: int) -> Any:
            return (self(batch) if whole else self.model(batch)).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[lightning_callback(Monitor())],
    )  # fmt: skip
    images = torch.utils.data.DataLoader(list(torch.rand(8, 1, 8, 8)), batch_size=4)
    trainer.fit(Module(), images, images)
    assert trainer.callback_metrics["geoattn/variance"] > 0
    assert "geoattn/curvature" in trainer.callback_metrics
