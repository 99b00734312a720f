"""Regularisers on models as people have them: value, gradient, attachment, removal."""

from __future__ import annotations

import math
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from geoattn.training.regularisers.curvature import CurvatureRegulariser
from geoattn.training.regularisers.entropy import RowEntropy
from geoattn.training.regularisers.variance import VarianceRegulariser
from tests.training.small_models import BATCH, bert, gradients, lvit


def plain_variance(model: nn.Module, **batch: Any) -> Tensor:
    """Mean over samples and heads of the variance over real tokens, then over layers: from the maps."""
    with capture(model) as record:
        model(**batch)
    layers = []
    for call in record:
        maps, valid = call.attention(), call.valid
        values = [maps[b, h][valid[b]][:, valid[b]].var(correction=0) for b in range(2) for h in range(2)]
        layers.append(torch.stack(values).mean())
    return torch.stack(layers).mean()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("direction", ["increase", "decrease"])
def test_equation_7_on_a_model_with_a_loss(direction: str, implementation: str) -> None:
    model = bert(implementation)
    variance = plain_variance(model, **BATCH)
    h = torch.exp(-200 * variance + 0.5) if direction == "increase" else torch.log(200 * variance + 0.5)
    expected = model(**BATCH).loss + 0.3 * h
    wanted = gradients(model, expected)
    handle = VarianceRegulariser(direction, 200.0, 0.5, 0.3).attach(model)
    loss = model(**BATCH).loss
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    for a, b in zip(gradients(model, loss), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-12)
    with pytest.raises(GeoattnError, match="in it already"):
        handle.penalty()
    assert math.isclose(handle.figures()["variance"], float(variance.detach()), rel_tol=1e-9)
    handle.remove()


@pytest.mark.parametrize("regulariser", [VarianceRegulariser("increase"), RowEntropy("decrease")])
def test_a_model_without_labels_gives_its_penalty_to_the_loop(regulariser: Any) -> None:
    model = bert("sdpa")
    batch = {k: v for k, v in BATCH.items() if k != "labels"}
    with regulariser.attach(model) as handle:
        logits = model(**batch).logits
        own = functional.cross_entropy(logits, BATCH["labels"]) + handle.penalty()
        added = model(**BATCH).loss
    torch.testing.assert_close(own, added)


def test_evaluation_without_gradients_leaves_the_loss_alone() -> None:
    model = bert("sdpa")
    with torch.no_grad():
        expected = model(**BATCH).loss
        with VarianceRegulariser("decrease").attach(model) as handle:
            assert torch.equal(model(**BATCH).loss, expected)
            assert handle.penalty() > 0


def test_removal_leaves_the_model_as_it_was() -> None:
    model = bert("sdpa")
    before = model(**BATCH).loss
    handle = VarianceRegulariser("decrease", gamma=5.0).attach(model)
    assert float((model(**BATCH).loss - before).detach().abs()) > 1e-4
    handle.remove()
    handle.remove()
    assert torch.equal(model(**BATCH).loss, before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    with pytest.raises(GeoattnError, match="removed"):
        handle.penalty()


class Frozen(NamedTuple):
    loss: Tensor
    logits: Tensor


@pytest.mark.parametrize("make", [Frozen, lambda loss, logits: SimpleNamespace(loss=loss, logits=logits)])
def test_any_object_with_a_loss(make: Any) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = lvit()

        def forward(self, x: Tensor) -> Any:
            logits = self.body(x)
            return make(logits.square().mean(), logits)

    model, x = Own(), torch.rand(2, 1, 8, 8)
    before = model(x).loss
    with RowEntropy("decrease", gamma=1.0).attach(model) as handle:
        after = model(x).loss
        torch.testing.assert_close(after, before + handle.figures()["penalty"])


@pytest.mark.parametrize("regulariser", [VarianceRegulariser("decrease"), CurvatureRegulariser("decrease", maps=1)])
def test_the_graph_goes_with_the_loss(regulariser: Any) -> None:
    """After the backward pass the handle keeps numbers alone; a second pass is an error, not a gradient of zero."""
    model = lvit()
    with regulariser.attach(model) as handle:
        model(torch.rand(2, 1, 8, 8))
        penalty, before = handle.penalty(), handle.figures()
        assert handle.penalty() is penalty
        mark = nn.Identity()  # any object: it lives as long as the graph
        penalty.grad_fn.metadata["mark"] = mark
        graph = weakref.ref(mark)
        del mark
        penalty.backward(retain_graph=True)
        assert handle.penalty() is penalty
        penalty.backward()
        value = penalty.item()
        del penalty
        assert graph() is None
        assert handle.figures() == before
        assert handle.penalty().item() == value
        with pytest.raises(GeoattnError, match="already; run the model again"):
            handle.penalty().backward()


def test_a_backward_pass_of_an_earlier_step_leaves_this_one_alone() -> None:
    model = lvit()
    with VarianceRegulariser("decrease").attach(model) as handle:
        model(torch.rand(2, 1, 8, 8))
        first = handle.penalty()
        model(torch.rand(2, 1, 8, 8))
        second = handle.penalty()
        first.backward()
        assert handle.penalty() is second
        second.backward()


def test_two_regularisers_at_once() -> None:
    model, x = lvit(), torch.rand(3, 1, 8, 8)
    first, second = VarianceRegulariser("increase"), CurvatureRegulariser("decrease")
    alone = []
    for regulariser in (first, second):
        with regulariser.attach(model) as handle:
            model(x)
            alone.append(handle.penalty())
    with first.attach(model) as a, second.attach(model) as b:
        model(x)
        torch.testing.assert_close(a.penalty(), alone[0])
        torch.testing.assert_close(b.penalty(), alone[1])


@pytest.mark.parametrize("direction", ["increase", "decrease"])
@pytest.mark.parametrize("kind", ["variance", "curvature"])
def test_training_moves_what_it_says(kind: str, direction: str) -> None:
    """A few steps on the penalty alone: variance or curvature goes where it should."""
    model, x = lvit(), torch.rand(8, 1, 8, 8)
    regulariser: Any = (
        VarianceRegulariser(direction) if kind == "variance" else CurvatureRegulariser(direction, maps="all")
    )
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    seen = []
    with regulariser.attach(model) as handle:
        for _ in range(12):
            model(x)
            adam.zero_grad()
            handle.penalty().backward()
            adam.step()
            seen.append(handle.figures()[kind])
    assert (seen[-1] > seen[0]) == (direction == "increase")


def test_log_per_layer() -> None:
    rows: list[tuple[int, dict[str, float]]] = []
    model = lvit()
    with VarianceRegulariser("increase").attach(model, log=lambda step, row: rows.append((step, row))) as handle:
        for _ in range(2):
            model(torch.rand(2, 1, 8, 8))
            handle.penalty()
    assert [step for step, _ in rows] == [0, 1]
    assert {"penalty", "variance", "variance/transformer.layers.0.0"} <= set(rows[0][1])


def test_layers_are_chosen_by_name() -> None:
    model = lvit()
    with RowEntropy().attach(model, layers="transformer.layers.1") as handle:
        model(torch.rand(2, 1, 8, 8))
        assert [k for k in handle.figures() if "/" in k] == ["entropy/transformer.layers.1.0"]


def test_entropy_has_finite_gradients_on_one_hot_rows() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = (100 * torch.randn(1, 5, 8)).requires_grad_()
    with RowEntropy("increase").attach(layer) as handle:
        layer(x, x, x)
        handle.penalty().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*:FutureWarning")
def test_compiled_models(backend: str) -> None:
    torch._dynamo.reset()
    model, x = lvit(), torch.rand(2, 1, 8, 8)
    with VarianceRegulariser("increase").attach(model) as handle:
        expected = model(x).square().mean() + handle.penalty()
        wanted = gradients(model, expected)
        compiled = torch.compile(model, backend=backend)
        for _ in range(2):
            loss = compiled(x).square().mean() + handle.penalty()
            torch.testing.assert_close(loss, expected)
            for a, b in zip(gradients(model, loss), wanted, strict=True):
                torch.testing.assert_close(a, b)
    torch._dynamo.reset()
