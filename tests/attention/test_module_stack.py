"""Running modules: threads, captures inside captures, and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from tests.attention.blocks import WIDTH, Block, Stack, TimmAttention, VitPytorchAttention


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(0))


class Waiting(nn.Module):
    """Stops between its two layers until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = TimmAttention(True), TimmAttention(True)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        self.reached.set()
        assert self.go_on.wait(20)
        return self.second(x)


def run(function: Callable[[], object]) -> tuple[threading.Thread, list[Exception]]:
    errors: list[Exception] = []

    def guarded() -> None:
        try:
            function()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread, errors


def test_another_thread(x: Tensor) -> None:
    model = Stack(TimmAttention(True), VitPytorchAttention())
    with capture(model) as record:
        thread, errors = run(lambda: model(x))
        thread.join()
        model(x)
    assert not errors
    assert len(record) == 4
    torch.testing.assert_close(record[1].attention(), record[3].attention())


def test_two_threads_at_once_are_refused(x: Tensor) -> None:
    model = Waiting()
    with capture(model) as record:
        thread, errors = run(lambda: model(x))
        assert model.reached.wait(20)
        with pytest.raises(GeoattnError, match=r"'Waiting' runs in a second thread while the model runs in another"):
            model(x)
        model.go_on.set()
        thread.join()
    assert not errors  # the first is not disturbed
    assert [call.name for call in record] == ["first", "second"]
    assert not _get_current_function_mode_stack()


def test_threads_with_models_of_their_own(x: Tensor) -> None:
    models = [Waiting(), Waiting()]
    records = []

    def work(model: Waiting) -> None:
        with capture(model) as record:
            model(x)
        records.append(record)

    started = [run(lambda model=model: work(model)) for model in models]
    for model in models:
        assert model.reached.wait(20)
    for model in models:
        model.go_on.set()
    for thread, errors in started:
        thread.join()
        assert not errors
    assert [record.names for record in records] == [["first", "second"]] * 2


def test_the_same_model_captured_twice(x: Tensor) -> None:
    model = Stack(TimmAttention(True), VitPytorchAttention())
    with capture(model) as outer, capture(model, layers="blocks.1") as inner:
        model(x)
        model(x)
    assert len(outer) == 4
    assert [call.visit for call in inner] == [0, 1]
    torch.testing.assert_close(outer[1].attention(), inner[0].attention())
    assert not _get_current_function_mode_stack()


def test_a_capture_inside_the_forward_pass_of_another(x: Tensor) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Block(TimmAttention(True)), Block(VitPytorchAttention())])
            self.found: list[str] = []

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers[0](x)
            with capture(self.layers[1]) as record:
                x = self.layers[1](x)
            self.found = record.names
            return self.layers[0](x)

    model = Outer()
    with capture(model) as record:
        model(x)
    assert model.found == ["attn"]
    assert [call.name for call in record] == ["layers.0.attn", "layers.1.attn", "layers.0.attn"]
    assert not _get_current_function_mode_stack()


def test_other_function_modes(x: Tensor) -> None:
    class Count(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    class Inside(Block):
        def forward(self, x: Tensor) -> Tensor:
            with Count() as self.count, torch.device("cpu"):
                return super().forward(x)

    model = nn.Sequential(Inside(TimmAttention(True)), Inside(VitPytorchAttention()))
    with Count() as around, capture(model) as record:
        model(x)
    assert record.names == ["0.attn", "1.attn"]
    assert around.calls > model[0].count.calls > 10
    assert not _get_current_function_mode_stack()


@pytest.mark.parametrize("place", ["group", "container", "attention", "hook"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_anywhere(x: Tensor, place: str, error: type[BaseException]) -> None:
    """In a group of plain layers, in a block that only adds, in attention itself, in somebody's hook."""

    def fail(*_: object) -> None:
        raise error

    model = Stack(TimmAttention(True), VitPytorchAttention())
    block = model.blocks[0]
    targets = {"group": block.mlp[1], "container": block.norm2, "attention": block.attn.proj, "hook": block}
    with capture(model) as record:
        handle = targets[place].register_forward_pre_hook(fail)
        with pytest.raises(error):
            model(x)
        handle.remove()
        record.clear()
        model(x)
        assert record.names == ["blocks.0.attn", "blocks.1.attn"]
        expected = [call.attention() for call in record]
    assert not _get_current_function_mode_stack()
    with capture(model) as again:
        model(x)
    torch.testing.assert_close([call.attention() for call in again], expected)


def test_a_module_that_names_only_its_children_may_be_attention(x: Tensor) -> None:
    class Scores(nn.Module):
        """Names nothing but its children, and is attention: the products are in the operators."""

        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
            self.flip, self.soft = nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (1, WIDTH))), nn.Softmax(-1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.soft(self.q(x) @ y) @ self.v(x)

    model = Scores()
    y = torch.randn(3, WIDTH, 5)
    with capture(nn.ModuleList([model])) as record:
        model(x, y)
    expected = (model.q(x) @ y).softmax(-1)
    torch.testing.assert_close(record[0].attention()[:, 0], expected)


def test_a_forward_of_somebody_elses_is_watched(x: Tensor) -> None:
    """Libraries put their own forward on an instance: what it does is not known from the class."""
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.Dropout())
    block.forward = lambda x: functional.scaled_dot_product_attention(x, x, x)
    with capture(nn.ModuleList([block])) as record:
        block(x)
    assert record.names == ["0"]


def test_a_softmax_called_between_other_modules_is_seen(x: Tensor) -> None:
    class Scores(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x.mT

    class Values(nn.Module):
        def forward(self, weights: Tensor, x: Tensor) -> Tensor:
            return weights @ x

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores, self.weights, self.values = Scores(), nn.Softmax(-1), Values()

        def forward(self, x: Tensor) -> Tensor:
            return self.values(self.weights(self.scores(x)), x)

    model = Parts()
    with capture(model) as record:
        model(x)
    assert len(record) == 1


def test_a_softmax_at_the_end_of_a_group_of_layers_is_seen(x: Tensor) -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = x.shape[-1]
            self.to_weights = nn.Sequential(
                nn.Linear(width, width), nn.GELU(), nn.Linear(width, x.shape[-2]), nn.Softmax(-1)
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.to_weights(x) @ x

    model = Mixer()
    with capture(model) as record:
        model(x)
    assert len(record) == 1
