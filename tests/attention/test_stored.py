"""Tensors that something changes in place after the call: what was kept is right, or an error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from tests.attention.blocks import by_hand

B, H, N, D = 2, 3, 5, 4


class Careless(nn.Module):
    """Attention that overwrites one of its tensors when it is done."""

    def __init__(self, part: str, fused: bool) -> None:
        super().__init__()
        self.part, self.fused = part, fused

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.fused:
            weights = None
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            weights = (q @ k.transpose(-1, -2) / D**0.5).softmax(-1)
            out = weights @ v
        parts = {"q": q, "k": k, "v": v, "mask": mask, "weights": weights}
        if parts.get(self.part) is not None:
            parts[self.part].zero_()
        return out


@pytest.fixture
def qkv() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, H, N, D, generator=generator) for _ in range(3)]


@pytest.mark.parametrize(("part", "fused"), [("q", True), ("k", True), ("weights", False), ("mask", True)])
@pytest.mark.parametrize("warm", [True, False])
def test_what_the_map_is_made_of(qkv: list[Tensor], part: str, fused: bool, warm: bool) -> None:
    """The first call is read at once, later ones when asked for."""
    model = Careless(part, fused)
    mask = torch.ones(N, N, dtype=torch.bool).tril() if part == "mask" else None
    with capture(model) as record:
        if warm:
            model(*(t.clone() for t in qkv), None)
        model(*(t.clone() for t in qkv), mask)
    what = "mask" if part == "mask" else "tensors"
    with pytest.raises(GeoattnError, match=f"the {what} of the attention call in 'Careless' changed in place"):
        record[-1].attention()


@pytest.mark.parametrize(("part", "fused"), [("q", True), ("k", True), ("weights", False)])
def test_inference_mode_has_no_versions(qkv: list[Tensor], part: str, fused: bool) -> None:
    """Nobody would notice the change there, so a copy is kept."""
    expected = by_hand(*qkv[:2])
    model = Careless(part, fused)
    with torch.inference_mode(), capture(model) as record:
        for _ in range(2):
            model(*(t.clone() for t in qkv))
    for call in record:
        torch.testing.assert_close(call.attention().double(), expected, atol=1e-6, rtol=0)


def test_values_and_tokens(qkv: list[Tensor]) -> None:
    model = Careless("v", True)
    with capture(model, inputs=True) as record:
        model(*(t.clone() for t in qkv))
    torch.testing.assert_close(record[0].attention().double(), by_hand(*qkv[:2]), atol=1e-6, rtol=0)
    torch.testing.assert_close(record[0].query, qkv[0])
    with pytest.raises(GeoattnError, match="the value of the attention call in 'Careless' changed in place"):
        _ = record[0].value

    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(B, N, 8)
    with torch.no_grad(), capture(layer, inputs=True) as record:
        x += layer(x, x, x, need_weights=False)[0]  # a residual in place
    assert record[0].query.shape == (B, 2, N, 4)
    with pytest.raises(GeoattnError, match="the tokens of"):
        _ = record[0].tokens


def test_the_mask_of_the_model() -> None:
    """A buffer for the batch that is filled anew for the next one."""

    class Masked(nn.Module):
        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            q, mask = x[:, None], attention_mask[:, None, None, :].bool()
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    model, mask = Masked(), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    with capture(model) as record:
        for _ in range(2):
            model(torch.randn(2, 4, D), attention_mask=mask)
        assert record[1].valid.tolist() == mask.bool().tolist()
        record.clear()
        for _ in range(2):
            model(torch.randn(2, 4, D), attention_mask=mask)
        mask.fill_(1)
    with pytest.raises(GeoattnError, match="the key mask of the attention call in 'Masked' changed in place"):
        _ = record[1].valid
