from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import geoattn as ga
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.function import local_lipschitz_of
from geoattn.smoothness.local import local_lipschitz
from geoattn.smoothness.norms import Norm
from tests.smoothness.cases import draw

F64 = torch.float64


def test_the_map_of_the_closed_form():
    for seed in (0, 1, 4, 8, 17):  # plain, causal, heads, around, around
        case = draw(seed, largest=200, logits=1.0)
        a = {k: v for k, v in case.arguments.items() if k not in ("A", "V", "W")}
        f = AttentionMap.of(case.arguments["A"], case.arguments.get("V"), case.arguments.get("W"), **a)
        of_function = local_lipschitz_of(f, torch.as_tensor(case.tokens))
        assert of_function.value == pytest.approx(local_lipschitz(case.tokens, **case.arguments).value, rel=1e-8)
        assert of_function.settings["derivative"] == "jvp"


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_whole_block_of_torch(norm_first):
    """Attention, residual, norms and MLP; the dense Jacobian is the reference."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first, dtype=F64)
    block = block.eval().requires_grad_(False)
    x = torch.randn(3, 5, 8, dtype=F64)
    result = local_lipschitz_of(block, x, samples=True)
    for k in range(3):
        with sdpa_kernel(SDPBackend.MATH):
            J = torch.func.jacrev(lambda t: block(t[None])[0])(x[k]).reshape(40, 40)
        assert result.value[k] == pytest.approx(float(torch.linalg.matrix_norm(J, 2)), rel=1e-7)
    together = local_lipschitz_of(block, x)  # one map of all samples: the largest
    assert together.value == pytest.approx(result.value.max(), rel=1e-7)
    assert result.direction.shape == result.response.shape == (3, 5, 8)


def test_multi_head_attention_of_torch_by_its_weights():
    """The closed form with the weights of nn.MultiheadAttention and a residual norm, against autograd of the module."""
    torch.manual_seed(0)
    d, h = 8, 2
    attention = nn.MultiheadAttention(d, h, batch_first=True, dtype=F64)
    nn.init.normal_(attention.in_proj_bias)
    norm = nn.LayerNorm(d, dtype=F64)
    nn.init.normal_(norm.weight)

    def block(x: torch.Tensor) -> torch.Tensor:
        y = norm(x)
        return x + attention(y[None], y[None], y[None], need_weights=False)[0][0]

    q, k, v = attention.in_proj_weight.detach().view(3, h, d // h, d)
    scale = (d // h) ** -0.5
    bias = attention.in_proj_bias.detach()[:d].view(h, d // h) * scale
    W = attention.out_proj.weight.detach().view(d, h, d // h).transpose(0, 1)
    x = torch.randn(6, d, dtype=F64)
    pre = Norm("layer", norm.weight.detach(), norm.bias.detach(), norm.eps)
    ours = local_lipschitz(x, (q * scale, k), v, W=W, bias=bias, norm=pre, residual=True)
    assert ours.value == pytest.approx(local_lipschitz_of(block, x).value, rel=1e-8)


def test_operations_without_forward_derivatives():
    class Square(torch.autograd.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(x):
            return x**2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = torch.tensor([1.0, -3.0, 2.0], dtype=F64)
    result = local_lipschitz_of(Square.apply, x)
    assert result.value == pytest.approx(6.0)
    assert result.settings["derivative"] == "double vjp"


def test_single_precision_says_so():
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(1, 5, 8)
    single = local_lipschitz_of(block, x)
    double = local_lipschitz_of(block.double(), x.double())
    assert single.settings["dtype"] == "torch.float32"
    assert single.value == pytest.approx(double.value, rel=1e-5)


def test_bad_functions_and_tokens():
    x = torch.ones(2, 3, dtype=F64)
    with pytest.raises(ga.GeoattnError, match="not deterministic"):
        local_lipschitz_of(nn.Dropout(0.5), torch.ones(20, 20, dtype=F64))
    with pytest.raises(ga.GeoattnError, match="one float tensor"):
        local_lipschitz_of(lambda t: (t, t), x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ga.GeoattnError, match="not finite"):
        local_lipschitz_of(lambda t: t / 0.0, x)
    with pytest.raises(ga.GeoattnError, match="must be finite"):
        local_lipschitz_of(lambda t: t, x * float("nan"))
    with pytest.raises(ga.GeoattnError, match="keep the axis"):
        local_lipschitz_of(lambda t: t.sum(0), x, samples=True)
    with pytest.raises(ga.GeoattnError, match="axis of samples"):
        local_lipschitz_of(lambda t: t, x[0], samples=True)
    with pytest.raises(ga.GeoattnError, match="torch tensor of floats"):
        local_lipschitz_of(lambda t: t, np.ones(3))
