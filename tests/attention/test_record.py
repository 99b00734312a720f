"""The record as a sequence, the choice of layers, what is refused, and what stays behind: nothing."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import _get_current_function_mode_stack

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from geoattn.attention.model_watch import watch_model
from tests.attention.blocks import HEADS, WIDTH, Stack, TimmAttention, VitPytorchAttention
from tests.attention.zoo import ARCHITECTURES


@pytest.fixture
def model() -> Stack:
    torch.manual_seed(0)
    return Stack(*(TimmAttention(i % 2 == 0) for i in range(12)))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(0))


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_sequence(model: Stack, x: Tensor) -> None:
    with capture(model) as record:
        model(x)
        assert len(record) == 12  # readable inside the block too
    assert record
    assert [call.index for call in record] == list(range(12))
    assert record[-1] is list(record)[11]
    assert [call.name for call in record[2:4]] == ["blocks.2.attn", "blocks.3.attn"]
    assert repr(record) == "Record(12 calls, closed)"
    assert repr(record[0]) == "Call('blocks.0.attn', self, sdpa, 3 x 4 heads x 5 x 5)"


def test_parts_of_a_map(model: Stack, x: Tensor) -> None:
    with capture(model, layers=["blocks.0", "blocks.1"]) as record:
        model(x)
    for call in record:
        whole = call.attention()
        torch.testing.assert_close(call.attention(sample=1, head=-1, rows=slice(1, 3)), whole[1:2, -1:, 1:3])
        torch.testing.assert_close(
            call.attention(sample=[2, 0], rows=torch.tensor([4, 1])), whole[[2, 0]][:, :, [4, 1]]
        )
        mask = torch.tensor([True, False, True, False])
        torch.testing.assert_close(call.attention(head=mask), whole[:, mask])
        blocks = [call.attention(rows=slice(i, i + 2)) for i in range(0, 5, 2)]
        torch.testing.assert_close(torch.cat(blocks, dim=2), whole)
        for wrong in ({"head": 4}, {"sample": -4}, {"rows": [0, 5]}):
            with pytest.raises(GeoattnError, match="out of range"):
                call.attention(**wrong)
        with pytest.raises(GeoattnError, match="selects nothing"):
            call.attention(rows=slice(3, 3))
        with pytest.raises(GeoattnError, match="a number, a slice or a list"):
            call.attention(head=[])


def test_padded_parts_of_a_map() -> None:
    model = ARCHITECTURES["bert"].build("sdpa")
    with torch.no_grad(), capture(model) as record:
        model(**ARCHITECTURES["bert"].batch("right"))
    whole = record[0].attention()
    torch.testing.assert_close(record[0].attention(sample=1, rows=[6, 0]), whole[1:2, :, [6, 0]])
    assert not whole[1, :, -3:].any()
    assert not whole[1, :, :, -3:].any()


def test_choice_of_layers(model: Stack, x: Tensor) -> None:
    def names(layers) -> list[str]:
        with capture(model, layers=layers) as record:
            model(x)
        return record.names

    assert names("blocks.1") == ["blocks.1.attn"]  # and not 10 and 11
    assert names("blocks.1*") == ["blocks.1.attn", "blocks.10.attn", "blocks.11.attn"]
    assert names(["blocks.[02].attn", "*.7"]) == ["blocks.0.attn", "blocks.2.attn", "blocks.7.attn"]
    assert names(lambda name: name.endswith("3.attn")) == ["blocks.3.attn"]
    with capture(model) as record:
        model(x)
    assert [call.index for call in record.select("*.5.*")] == [5]
    with pytest.raises(GeoattnError, match=r"layers='x' matches none of the modules in this record: 'blocks.0.attn'"):
        record.select("x")


def test_layers_that_do_not_exist(model: Stack, x: Tensor) -> None:
    with pytest.raises(GeoattnError, match=r"layers='encoder\.\*' matches none of the modules .*: 'Stack', 'blocks'"):
        capture(model, layers="encoder.*")
    with pytest.raises(GeoattnError, match="layers must be a pattern"):
        capture(model, layers=[])
    for number in (3, [0], True):
        with pytest.raises(GeoattnError, match=r"layers must be a pattern.*'\*\.3' is the one that is named 3"):
            capture(model, layers=number)
    with capture(model, layers="blocks.*.mlp") as record:  # a module, but not one with attention
        model(x)
    with pytest.raises(GeoattnError, match=r"modules in which attention ran: 'blocks.0.attn', .* and 4 more"):
        len(record)


def test_no_attention(x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softmax(-1))
    with capture(model) as record:
        model(x)
        functional.scaled_dot_product_attention(x, x, x)  # not of this model
    assert not record
    for read in (list, len, lambda r: r[0], lambda r: r.names, lambda r: r.check(), lambda r: r.select("*")):
        with pytest.raises(GeoattnError, match="no attention ran in this capture"):
            read(record)


def test_entered_twice(model: Stack, x: Tensor) -> None:
    block = capture(model)
    with block:
        model(x)
        with pytest.raises(GeoattnError, match="was entered before"):
            block.__enter__()
    with pytest.raises(GeoattnError, match="was entered before"), block:
        pass
    assert not hooks(model)


def test_nothing_stays_behind(model: Stack, x: Tensor) -> None:
    with capture(model):
        assert hooks(model)
    assert not hooks(model)
    assert not _get_current_function_mode_stack()


def test_nothing_stays_behind_after_an_error(model: Stack, x: Tensor) -> None:
    model.blocks[3].mlp = nn.Linear(3, 3)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), capture(model) as record:
        model(x)
    assert not hooks(model)
    assert not _get_current_function_mode_stack()
    assert len(record) == 4  # what ran is there
    assert not watch_model(model).recorder.running
    assert not watch_model(model).recorder.tracker.is_following()


def test_error_inside_the_block_does_not_shift_names(model: Stack, x: Tensor) -> None:
    with capture(model) as record:
        with pytest.raises(RuntimeError):
            model(x[..., :3])
        record.clear()
        model(x)
    assert record.names[0] == "blocks.0.attn"
    assert len(record) == 12


def test_entered_in_the_middle_of_a_forward_pass(x: Tensor) -> None:
    model = Stack(TimmAttention(True), TimmAttention(True))
    opened = []

    def open_capture(*_) -> None:
        if not opened:
            opened.append(capture(model))
            opened.append(opened[0].__enter__())

    handle = model.blocks[1].register_forward_pre_hook(open_capture)
    model(x)
    handle.remove()
    model(x)
    opened[0].__exit__(None, None, None)
    assert [call.name for call in opened[1]][-2:] == ["blocks.0.attn", "blocks.1.attn"]
    assert not watch_model(model).recorder.running


def test_two_captures_at_once(model: Stack, x: Tensor) -> None:
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True).eval()
    both = nn.ModuleList([model, module])
    with capture(both) as outer, capture(module) as inner:
        model(x)
        module(x)
    assert inner.names == ["self_attn"]
    assert outer.names[-1] == "1.self_attn"
    assert len(outer) == 13
    torch.testing.assert_close(inner[0].attention(), outer[-1].attention())


def test_reading_inside_the_forward_pass_is_not_recorded(x: Tensor) -> None:
    model = Stack(TimmAttention(True), TimmAttention(True))
    with capture(model) as record:

        def read(*_) -> None:
            record[0].attention() @ torch.randn(3, HEADS, 5, 5)

        handle = model.blocks[0].attn.register_forward_hook(read)
        model(x)
        handle.remove()
    assert len(record) == 2


def test_inputs_are_kept_only_when_asked_for(x: Tensor) -> None:
    model = VitPytorchAttention()
    with capture(model) as record:
        model(x)
    for part in ("query", "key", "value", "tokens", "source"):
        with pytest.raises(GeoattnError, match=rf"{part} of 'VitPytorchAttention' was not kept; use .*inputs=True"):
            getattr(record[0], part)
    with capture(model, inputs=True) as record:
        model(x)
    assert record[0].tokens is x
    with pytest.raises(GeoattnError, match=r"source of .* was not found"):
        _ = record[0].source


def test_reduce_keeps_only_what_it_returns(model: Stack, x: Tensor) -> None:
    seen = []

    def entropy(call) -> Tensor:
        seen.append(torch.is_grad_enabled())
        a = call.attention()
        return -(a * a.log()).sum(-1).mean()

    with capture(model, reduce=entropy) as record:
        model(x)
    assert len(record) == 12
    assert not any(seen)
    assert record.nbytes == 0
    assert all(0 < call.reduced < torch.tensor(5.0).log() + 1e-6 for call in record)
    with pytest.raises(GeoattnError, match="was reduced"):
        record[0].attention()


def test_change_in_place_is_noticed(x: Tensor) -> None:
    class Careless(TimmAttention):
        def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
            q, k, v = self.heads(x)
            out = functional.scaled_dot_product_attention(q, k, v)
            k.zero_()
            return out

    model = Careless(True).requires_grad_(False)
    with capture(model) as record:
        model(x)
    with pytest.raises(GeoattnError, match="changed in place"):
        record[0].attention()


def test_inference_mode(model: Stack, x: Tensor) -> None:
    with torch.inference_mode(), capture(model) as record:
        model(x)
    torch.testing.assert_close(record[0].attention().sum(-1), torch.ones(3, HEADS, 5))


@pytest.mark.parametrize("padded", [False, True])
def test_memory_of_a_long_sequence(padded: bool) -> None:
    """A layer of 12 heads at n = 4,096 in less than 5 % of its map; masks of all pairs are made small."""
    n, heads, d = 4096, 12, 64

    class Layer(nn.Module):
        def forward(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
            # values of width one: the test need not wait for the product
            return functional.scaled_dot_product_attention(q, k, k[..., :1], attn_mask=mask)

    model = Layer()
    q, k = torch.randn(1, heads, n, d), torch.randn(1, heads, n, d)
    mask = None
    if padded:
        mask = torch.ones(n, n, dtype=torch.bool).tril()[None, None]
        mask[..., :9] = False
    with torch.no_grad(), capture(model) as record:
        model(q, k, mask)
    del mask
    assert record.nbytes < 0.05 * 4 * heads * n * n
    assert record.nbytes == pytest.approx(2 * 4 * heads * n * d, rel=1e-2)
    rows = record[0].attention(head=3, rows=[8, 9, n - 1])
    sums = torch.tensor([0.0, 1.0, 1.0]) if padded else torch.ones(3)
    torch.testing.assert_close(rows.sum(-1), sums[None, None])


def test_layers_share_a_mask() -> None:
    model = ARCHITECTURES["mistral"].build("sdpa")  # a sliding window: a mask that stays as large as it is
    with torch.no_grad(), capture(model) as record:
        model(**ARCHITECTURES["mistral"].batch("left"))
    assert record.nbytes < sum(call.nbytes for call in record)


def test_what_is_kept_of_a_model_goes_with_it(x: Tensor) -> None:
    model = Stack(TimmAttention(True), VitPytorchAttention())
    with capture(model) as record:
        model(x)
    watch, whole = weakref.ref(watch_model(model)), weakref.ref(model)
    assert len(record) == 2
    del model, record
    gc.collect()
    assert whole() is None
    assert watch() is None


def test_a_model_that_changes_between_captures(x: Tensor) -> None:
    model = Stack(TimmAttention(True))
    with capture(model) as record:
        model(x)
    model.blocks[0].attn = VitPytorchAttention()
    model.blocks.append(type(model.blocks[0])(TimmAttention(True)))
    with capture(model) as record:
        model(x)
    assert [(call.name, call.route) for call in record] == [("blocks.0.attn", "softmax"), ("blocks.1.attn", "sdpa")]
    assert not hooks(model)


def test_a_record_of_whole_maps_says_why(x: Tensor) -> None:
    class ByHand(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x.mT).softmax(-1) @ x

    with capture(model := ByHand()) as record:
        model(x)
    assert record.kept.startswith("1 calls keep whole maps (")
    assert "the model computes these maps itself" in record.kept
    assert "set_attn_implementation('sdpa')" in record.kept
