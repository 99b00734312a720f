"""torch.compile: the same maps, names and gradients, and no new graph at each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoattn.attention import capture
from tests.attention.blocks import HEADS, WIDTH, EinsumAttention, Stack, TimmAttention, VitPytorchAttention
from tests.attention.forms import FORMS, B, N, Written
from tests.attention.forms import WIDTH as FORMS_WIDTH

# dynamo itself looks at .grad of the inputs of a graph
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*:FutureWarning"),
]


class Torch(nn.Module):
    """nn.MultiheadAttention in the place of an attention module."""

    def __init__(self) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.mha(x, x, x, need_weights=False)[0]


class Graphs:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Any, _: Any) -> Callable[..., Any]:
        self.count += 1
        return graph.forward


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: TimmAttention(True),
        lambda: TimmAttention(False, drop=0.2),
        VitPytorchAttention,
        EinsumAttention,
        Torch,
    ],
)
def test_one_graph_for_all_steps(make: Callable[[], nn.Module], inputs: bool) -> None:
    model, graphs = Stack(make(), make()), Graphs()
    x = torch.randn(3, 5, WIDTH)
    with capture(model) as expected:
        model(x)
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    with capture(model, inputs=inputs) as record:
        for _ in range(4):
            loss = compiled(x).sum() + sum(call.attention().square().sum() for call in record)
            loss.backward()
            steps = list(record)
            record.clear()
    assert graphs.count == 1
    assert [call.name for call in steps] == [call.name for call in expected]
    drops = any(getattr(module, "p", 0.0) for module in model.modules())  # then only the first layer is the same
    for call, eager in list(zip(steps, expected, strict=True))[: 1 if drops else None]:
        torch.testing.assert_close(call.attention(), eager.attention(), atol=1e-6, rtol=0)
    if inputs:
        torch.testing.assert_close(steps[0].tokens, model.blocks[0].norm1(x))


@pytest.mark.parametrize("form", ["values first", "ellipsis", "set transformer", "heads outside"])
def test_other_ways_to_write_attention(form: str) -> None:
    model, graphs = Written(FORMS[form]), Graphs()
    x = torch.randn(B, N, FORMS_WIDTH)
    with capture(model) as expected:
        model(x)
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    with capture(model) as record:
        for _ in range(3):
            compiled(x)
    assert graphs.count == 1
    assert len(record) == 3
    torch.testing.assert_close(record[2].attention(), expected[0].attention(), atol=1e-6, rtol=0)


def test_steps_without_anything_between_them() -> None:
    model, graphs = Stack(TimmAttention(True)), Graphs()

    @torch.compile(backend=graphs)
    def step(x: Tensor) -> Tensor:
        return model(x).sum()

    x = torch.randn(3, 5, WIDTH)
    with capture(model) as record:
        for _ in range(5):
            step(x)
    assert graphs.count == 1
    assert [call.visit for call in record] == list(range(5))


def test_graph_breaks_and_regions() -> None:
    class Broken(Stack):
        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
                torch._dynamo.graph_break()
            return x

    model, graphs = Broken(TimmAttention(True), TimmAttention(False)), Graphs()
    compiled = torch.compile(model, backend=graphs)
    x = torch.randn(3, 5, WIDTH)
    with capture(compiled) as record:
        for _ in range(3):
            compiled(x)
    count = graphs.count
    assert record.names == ["blocks.0.attn", "blocks.1.attn"]
    assert len(record) == 6
    with capture(model) as record:
        compiled(x)
        compiled(x)
    assert graphs.count <= 2 * count
    assert len(record) == 4

    model, graphs = Stack(TimmAttention(True), TimmAttention(False)), Graphs()
    for block in model.blocks:
        block.compile(backend=graphs)
    with capture(model) as record:
        for _ in range(3):
            model(x)
    assert graphs.count == 2
    assert record.names == ["blocks.0.attn", "blocks.1.attn"]
    assert len(record) == 6


@pytest.mark.parametrize("make", [lambda: TimmAttention(True), VitPytorchAttention])
def test_many_captures_compile_once(make: Callable[[], nn.Module]) -> None:
    model, graphs = Stack(make(), make()).eval(), Graphs()
    compiled, x = torch.compile(model, backend=graphs), torch.randn(3, 5, WIDTH)
    with torch.no_grad():
        compiled(x)
        assert graphs.count == 1
        for _ in range(20):
            with capture(model) as record:
                compiled(x)
            assert len(record) == 2
        compiled(x)
    assert graphs.count == 2  # one besides the plain one


def test_reduce_under_compile() -> None:
    model = Stack(VitPytorchAttention())
    compiled = torch.compile(model, backend="eager")
    with capture(model, reduce=lambda call: call.attention().sum().item()) as record:
        compiled(torch.randn(3, 5, WIDTH))
    assert record[0].reduced == pytest.approx(3 * HEADS * 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_inductor() -> None:
    model = Stack(TimmAttention(True), VitPytorchAttention(), Torch())
    x = torch.randn(3, 5, WIDTH)

    def gradient(run: Callable[[Tensor], Tensor]) -> tuple[list[Tensor], Tensor]:
        model.zero_grad()
        with capture(model) as record:
            (run(x).sum() + sum(call.attention().square().sum() for call in record)).backward()
        return [call.attention() for call in record], model.blocks[0].attn.qkv.weight.grad.clone()

    (maps, weight), (compiled_maps, compiled_weight) = gradient(model), gradient(torch.compile(model))
    torch.testing.assert_close(maps, compiled_maps, atol=1e-6, rtol=0)
    torch.testing.assert_close(weight, compiled_weight, atol=1e-5, rtol=1e-4)
