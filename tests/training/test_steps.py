"""What counts as one step: evaluation mode, several forward passes, backward passes, passes without gradients."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.attention import capture
from geoattn.training.attachments import attachment_class, attachment_names
from geoattn.training.regularisers.contract import PATIENCE
from geoattn.training.regularisers.variance import VarianceRegulariser
from tests.training.small_models import BATCH, bert, gradients, lvit
from tests.training.test_contract import SETTINGS
from tests.training.test_monitor import Whole

IMAGES = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def regulariser() -> VarianceRegulariser:
    return VarianceRegulariser("increase", gamma=2.0)


def penalty_of(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Gradients of the penalty of one pass with the whole batch."""
    with regulariser().attach(model) as handle:
        model(images)
        return gradients(model, handle.penalty())


@pytest.mark.parametrize("name", attachment_names())
def test_no_penalty_in_evaluation_mode(name: str) -> None:
    model = lvit()
    with attachment_class(name)(**SETTINGS[name]).attach(model) as handle:
        model(IMAGES)
        handle.penalty()
        model.eval()(IMAGES)  # gradients are on
        penalty = handle.penalty()
        assert float(penalty) == 0
        assert not penalty.requires_grad
        assert handle.figures().get("penalty", 0.0) == 0
        model.train()(IMAGES)
        if hasattr(handle, "regulariser"):
            assert handle.penalty().requires_grad


def test_the_loss_of_a_model_in_evaluation_mode_is_its_own() -> None:
    model = bert("sdpa")
    expected = model.eval()(**BATCH).loss
    with regulariser().attach(model):
        model.train()(**BATCH)
        torch.testing.assert_close(model.eval()(**BATCH).loss, expected)
        assert model.train()(**BATCH).loss > expected


@pytest.mark.parametrize("own_loss", [True, False])
def test_a_model_that_was_left_in_evaluation_mode_is_said_once(own_loss: bool) -> None:
    """Models of Hugging Face are loaded in this mode."""
    model: Any = bert("sdpa").eval() if own_loss else lvit().eval()
    with regulariser().attach(model) as handle:

        def ask() -> None:
            if own_loss:
                model(**BATCH)
            else:
                model(IMAGES)
                assert float(handle.penalty()) == 0

        with pytest.warns(GeoattnWarning, match=r"call model\.train\(\)"):
            ask()
        ask()  # a second warning would be an error here


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("sizes", [(6,), (3, 3), (4, 1, 1)])
def test_several_forward_passes_count_as_one_batch(part: bool, sizes: tuple[int, ...]) -> None:
    model = Whole()
    expected = penalty_of(model, IMAGES)
    with regulariser().attach(model) as handle:
        for images in IMAGES.split(list(sizes)):
            (model.net if part else model)(images)
        penalty = handle.penalty()
        assert handle.step == 0
        for one, other in zip(gradients(model, penalty), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("accumulation", [1, 2, 4, 8])
@pytest.mark.parametrize("part", [False, True])
def test_accumulation_in_a_plain_loop(accumulation: int, part: bool) -> None:
    """The mean of the penalties of the micro-batches, and of their tasks, by hand."""
    images = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    model, chosen = Whole(), regulariser()
    run = model.net if part else model
    with chosen.attach(model) as handle:
        for micro in images.chunk(accumulation):
            loss = run(micro).square().mean() + handle.penalty()
            (loss / accumulation).backward()
        total = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    by_hand = torch.zeros(())
    for micro in images.chunk(accumulation):
        with capture(model) as record:
            task = model(micro).square().mean()
        n = record[0].shape[-1]
        variance = torch.stack([call.attention().var((-2, -1), correction=0).mean() for call in record]).mean()
        by_hand = by_hand + (task + 2.0 * torch.exp(-4 / 3 * n**3 / (n - 1) * variance)) / accumulation
    for one, other in zip(total, gradients(model, by_hand), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_backward_pass_ends_a_step() -> None:
    """A pass whose penalty nobody asked for does not join the next step: its graph is gone."""
    model = lvit()
    expected = penalty_of(model, IMAGES)
    with regulariser().attach(model) as handle:
        model(IMAGES[:2]).square().mean().backward()
        model(IMAGES)
        assert handle.step == 1
        for one, other in zip(gradients(model, handle.penalty()), expected, strict=True):
            torch.testing.assert_close(one, other)


def test_a_pass_without_gradients_between_forward_pass_and_penalty_is_refused() -> None:
    model = lvit()
    with regulariser().attach(model) as handle:
        model(IMAGES)
        with torch.no_grad():
            model(IMAGES[:1])
        with pytest.raises(GeoattnError, match=r"call handle\.penalty\(\) before it"):
            handle.penalty()
        with torch.no_grad():
            model(IMAGES[:1])
        model(IMAGES)  # the other order is fine
        assert handle.penalty().requires_grad


@pytest.mark.parametrize("logs", [False, True])
def test_a_penalty_that_nobody_adds_is_said_once(logs: bool) -> None:
    """Whether the loop is long or ends soon, and also when it reads the figures alone."""

    def train(steps: int) -> tuple[int, int]:
        """Warnings during training, and in all."""
        model = lvit()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            handle = regulariser().attach(model)
            for _ in range(steps):
                loss = model(IMAGES).square().mean()
                assert handle.figures() if logs else True
                loss.backward()
            during = len(said)
            handle.remove()
        message = r"VarianceRegulariser did nothing: LViT .* Write loss = loss \+ handle\.penalty\(\)"
        assert all(re.search(message, str(one.message)) for one in said)
        return during, len(said)

    assert train(1) == (0, 1)
    assert train(PATIENCE + 2) == (1, 1)


def test_passes_without_a_penalty_are_no_news_when_others_have_one() -> None:
    """An attack on the inputs runs forward and backward before the step that trains; warnings are errors here."""
    model = lvit()
    with regulariser().attach(model) as handle:
        for _ in range(3):
            for _ in range(PATIENCE - 2):
                model(IMAGES).square().mean().backward()
            (model(IMAGES).square().mean() + handle.penalty()).backward()
