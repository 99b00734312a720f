"""What capture refuses, before a wrong number comes out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from geoattn.attention.refusals import refuse_model
from tests.attention.blocks import WIDTH, Stack, TimmAttention, VitPytorchAttention
from tests.attention.zoo import ARCHITECTURES


@pytest.fixture
def model() -> Stack:
    torch.manual_seed(0)
    return Stack(TimmAttention(True), VitPytorchAttention())


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(0))


def test_what_is_no_model() -> None:
    with pytest.raises(GeoattnError, match=r"needs a torch.nn.Module; got function"):
        refuse_model(lambda x: x)


def test_what_is_refused(model: Stack) -> None:
    with pytest.raises(GeoattnError, match=r"nn.DataParallel \(at '0'\) runs the model in threads"):
        capture(nn.Sequential(nn.DataParallel(model)))
    bert = ARCHITECTURES["bert"].build("sdpa")
    bert.config._attn_implementation = "flex_attention"
    with pytest.raises(GeoattnError, match=r"'flex_attention' shows neither .*set_attn_implementation"):
        capture(bert)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_models_are_refused() -> None:
    with pytest.raises(GeoattnError, match="TorchScript"):
        capture(torch.jit.script(nn.Linear(2, 2)))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("inputs", [True, False])
def test_kernels_that_show_nothing_are_refused(inputs: bool) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    class Flex(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return flex_attention(q, q, q)

    model = Flex()
    with pytest.raises(GeoattnError, match="'Flex' uses the kernel flex_attention"), capture(model, inputs=inputs):
        model(torch.randn(1, 1, 16, 16))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused() -> None:
    class Bare(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(q, q, q)

    q = torch.nested.nested_tensor([torch.randn(3, 2, 4), torch.randn(5, 2, 4)], layout=torch.jagged).transpose(1, 2)
    model = Bare()
    with pytest.raises(GeoattnError, match="nested tensors"), capture(model):
        model(q)


@pytest.fixture
def library() -> object:
    """Kernels of somebody else's, as flash-attn and xformers register theirs."""
    own = torch.library.Library("geoattn_test", "DEF")
    for name in ("fmha_forward", "flash_attn", "scale"):
        own.define(f"{name}(Tensor q) -> Tensor")
        own.impl(name, lambda q: q.clone(), "CPU")
    yield own
    own._destroy()


@pytest.mark.parametrize("inputs", [True, False])
@pytest.mark.parametrize("function", [True, False])
def test_kernels_of_others(library: object, x: Tensor, inputs: bool, function: bool) -> None:
    class Kernel(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: Tensor) -> Tensor:
            kernel = getattr(torch.ops.geoattn_test, self.name)
            if not function:
                return kernel(x)

            class Wrapped(torch.autograd.Function):
                @staticmethod
                def forward(ctx: object, x: Tensor) -> Tensor:
                    return kernel.default(x)

            return Wrapped.apply(x)

    for name in ("fmha_forward", "flash_attn"):
        both = nn.ModuleList([TimmAttention(True), Kernel(name)])
        with pytest.raises(GeoattnError, match=rf"'1' uses the kernel geoattn_test.{name}.*set_attn_implementation"):
            with capture(both, inputs=inputs):
                both[1](x)
        with capture(both, layers="0", inputs=inputs) as record:  # not wanted, not refused
            both[1](both[0](x))
        assert record.names == ["0"]
    other = nn.Sequential(Kernel("scale"), TimmAttention(True))
    with capture(other, inputs=inputs) as record:
        other(x)
    assert len(record) == 1


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("kind", [lambda: TimmAttention(True), VitPytorchAttention])
def test_vmap_is_refused_and_other_transforms_are_not(x: Tensor, kind: type[nn.Module]) -> None:
    model = kind()
    with pytest.raises(GeoattnError, match=r"runs under torch.vmap, which hides the batch"), capture(model):
        torch.func.vmap(lambda sample: model(sample[None])[0])(x)
    with capture(model) as expected:
        model(x)
    with capture(model) as record:
        torch.func.grad(lambda x: model(x).sum())(x)
        torch.func.functional_call(model, dict(model.named_parameters()), x)
    for call in record:
        torch.testing.assert_close(call.attention(), expected[0].attention())


def test_nested_tensors_on_the_way_of_the_softmax() -> None:
    class Jagged(nn.Module):
        def forward(self, x: Tensor, scores: Tensor) -> Tensor:
            return torch.matmul(scores.softmax(-1), x)

    parts = [torch.randn(3, 2, 4), torch.randn(5, 2, 4)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    model = Jagged()
    with pytest.raises(GeoattnError, match="nested tensors"), capture(model):
        model(x.transpose(-1, -2), x)


def test_an_exported_model() -> None:
    model, x = TimmAttention(True).eval(), torch.randn(3, 5, WIDTH)
    exported = torch.export.export(model, (x,)).module()
    with torch.no_grad(), capture(exported) as record, capture(model) as expected:
        exported(x)
        model(x)
    torch.testing.assert_close(record[0].attention(), expected[0].attention())
