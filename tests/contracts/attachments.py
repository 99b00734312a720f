"""The laws of the contract of attachments. `check_attachment` runs all of them on any class that follows it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

from geoattn._core.errors import GeoattnError
from geoattn.training import Attachment, Handle
from tests.training.small_models import lvit


def model_and_images() -> tuple[nn.Module, Tensor]:
    return lvit().double(), torch.rand(3, 1, 8, 8, dtype=torch.float64)


def traces(model: nn.Module) -> int:
    """What somebody left at a model: hooks, and attributes that its class and `__init__` did not make."""
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return hooks + sum("forward" in vars(m) for m in model.modules())


def step(handle: Handle, model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    output = model(images)
    return output, handle.penalty()


def check_attachment(attachment: Attachment) -> None:
    """Run every law; an assertion says which one fails."""
    for law in (
        attaches_and_detaches, adds_a_scalar, leaves_parameters_and_random_numbers, has_plain_figures, logs_each_step,
        refuses_unknown_layers, survives_an_error, is_reusable, works_beside_another, follows_gradients,
    ):  # fmt: skip
        law(attachment)


def attaches_and_detaches(attachment: Attachment) -> None:
    model, images = model_and_images()
    torch.manual_seed(1)
    before = model(images)
    handle = attachment.attach(model)
    assert isinstance(handle, Handle)
    assert handle.model is model
    output, _ = step(handle, model, images)
    if not attachment.changes_attention:
        torch.testing.assert_close(output, before)
    handle.remove()
    handle.remove()
    torch.manual_seed(1)
    assert torch.equal(model(images), before)
    assert traces(model) == 0
    assert not _get_current_function_mode_stack()
    with pytest.raises(GeoattnError, match="removed from its model"):
        handle.penalty()


def adds_a_scalar(attachment: Attachment) -> None:
    model, images = model_and_images()
    with attachment.attach(model) as handle:
        output, penalty = step(handle, model, images)
        assert penalty.shape == ()
        assert math.isfinite(float(penalty.detach()))
        assert torch.equal(handle.penalty(), penalty)
        (output.square().mean() + penalty).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def leaves_parameters_and_random_numbers(attachment: Attachment) -> None:
    model, images = model_and_images()
    state = copy.deepcopy(model.state_dict())
    with attachment.attach(model) as handle:
        torch.manual_seed(1)
        model(images)
        after = torch.get_rng_state()
        handle.penalty()
        handle.figures()
        assert torch.equal(torch.get_rng_state(), after)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())


def has_plain_figures(attachment: Attachment) -> None:
    model, images = model_and_images()
    with attachment.attach(model) as handle:
        _, penalty = step(handle, model, images)
        figures = handle.figures()
        assert figures
        assert all(type(name) is str and type(value) is float for name, value in figures.items())
        assert figures.get("penalty", 0.0) == pytest.approx(float(penalty.detach()))


def logs_each_step(attachment: Attachment) -> None:
    model, images = model_and_images()
    rows: list[tuple[int, dict[str, float]]] = []
    with attachment.attach(model, log=lambda number, row: rows.append((number, row))) as handle:
        _, penalty = step(handle, model, images)
        if hasattr(handle, "observe"):
            handle.observe(penalty)
        assert handle.step == 0
        handle.restart()
        step(handle, model, images)
        assert handle.step == 1
    assert [number for number, _ in rows][:1] == [0]
    assert all(type(value) is float for _, row in rows for value in row.values())


def refuses_unknown_layers(attachment: Attachment) -> None:
    model, _ = model_and_images()
    with pytest.raises(GeoattnError, match="matches none of the modules"):
        attachment.attach(model, layers="encoder.layer.7")
    assert traces(model) == 0


def survives_an_error(attachment: Attachment) -> None:
    model, images = model_and_images()
    with attachment.attach(model) as handle:
        with pytest.raises(GeoattnError):
            model(images[:, :, :3])
        assert not _get_current_function_mode_stack()
        _, penalty = step(handle, model, images)
        assert math.isfinite(float(penalty.detach()))
    assert traces(model) == 0


def is_reusable(attachment: Attachment) -> None:
    """One object may be attached to several models, and again."""
    found = []
    for _ in range(2):
        model, images = model_and_images()
        with attachment.attach(model) as handle:
            found.append(float(step(handle, model, images)[1].detach()))
    assert found[0] == pytest.approx(found[1])


def works_beside_another(attachment: Attachment) -> None:
    model, images = model_and_images()
    with attachment.attach(model) as alone:
        _, expected = step(alone, model, images)
    with attachment.attach(model) as first, attachment.attach(model) as second:
        torch.manual_seed(1)
        model(images)
        if not attachment.changes_attention:
            torch.testing.assert_close(first.penalty(), expected)
            torch.testing.assert_close(second.penalty(), expected)
        first.remove()
        second.step = -1  # a sample follows the step
        torch.manual_seed(1)
        model(images)
        torch.testing.assert_close(second.penalty(), expected)
    assert traces(model) == 0


def follows_gradients(attachment: Attachment) -> None:
    """The gradient of the penalty is its derivative along a direction, by central differences."""
    model, images = model_and_images()
    weight: Any = next(p for name, p in model.named_parameters() if "to_qkv" in name)
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(2), dtype=weight.dtype)

    start = weight.detach().clone()

    def penalty(shift: float) -> Tensor:
        weight.data = start + shift * direction
        with attachment.attach(model) as handle:
            return step(handle, model, images)[1]

    value = penalty(0.0)
    if not value.requires_grad:
        assert float(value) == 0.0
        return
    (gradient,) = torch.autograd.grad(value, weight)
    size = 1e-5
    difference = float((penalty(size) - penalty(-size)).detach()) / (2 * size)
    assert float((gradient * direction).sum()) == pytest.approx(difference, rel=1e-3, abs=1e-7)
