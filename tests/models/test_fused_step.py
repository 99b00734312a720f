"""The fused training step: the same function and gradients as the plain blocks, the law of its dropout, its limits."""

import copy

import pytest
import torch
from torch.nn import functional

import geoattn as ga
from geoattn import _native
from geoattn._core.errors import GeoattnError
from geoattn.models.fused_attention import FusedAttention, Values
from geoattn.models.fused_blocks import FusedFeedForward, FusedProjection, draw_seed, threshold
from geoattn.models.fused_step import FastAttention, FastFeedForward, with_fused_step
from geoattn.models.lvit import FeedForward, LViT, LViTConfig
from geoattn.training import EdgeMask, LipschitzRegulariser, Recipe, RowEntropy, train

P = threshold(0.25)
CHUNK = 96  # rows, see native/encoder/jobs.hpp


def factors(seed, dropped, first, step, rows, each, width):
    """What dropout multiplies with, by the kernel's own generator."""
    found = torch.empty(rows, width)
    _native.dropout_factors(seed, dropped, first, step, rows, each, width, found.data_ptr())
    return found


def feed_forward(x, norm_weight, norm_bias, first, first_bias, second, second_bias, inner, outer):
    """The block step by step."""
    y = functional.layer_norm(x, x.shape[-1:], norm_weight, norm_bias)
    h = functional.gelu(functional.linear(y, first, first_bias)) * inner
    return functional.linear(h, second, second_bias) * outer


def compare(fused, plain, inputs, tolerance=1e-5):
    """Values and gradients of the fused form in float32 against the plain one in float64, relative in norm."""
    wide = [t.detach().double().requires_grad_() for t in inputs]
    out, expected = fused(*inputs), plain(*wide)
    upstream = torch.randn(expected.shape)
    out.backward(upstream)
    expected.backward(upstream.double())
    for name, found, true in [
        ("out", out, expected),
        *((i, t.grad, w.grad) for i, (t, w) in enumerate(zip(inputs, wide, strict=True))),
    ]:
        assert float((found.detach().double() - true.detach()).norm()) <= tolerance * float(true.detach().norm()), name


def leaves(*shapes):
    return [torch.randn(shape).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("dropped", [0, P])
@pytest.mark.parametrize(
    ("b", "n", "width", "middle"), [(64, 17, 64, 128), (1, 1, 16, 16), (3, 7, 48, 80), (2, 97, 192, 64)]
)
def test_feed_forward_is_the_plain_formula_with_the_same_masks(b, n, width, middle, dropped):
    torch.manual_seed(0)
    inputs = leaves((b, n, width), width, width, (middle, width), middle, (width, middle), width)
    inner = factors(5, dropped, 0, 2, b * n, CHUNK, middle).view(b, n, -1)
    outer = factors(5, dropped, 1, 2, b * n, CHUNK, width).view(b, n, -1)
    compare(
        lambda *t: FusedFeedForward.apply((1e-5, 5, dropped, dropped), *t),
        lambda *t: feed_forward(*t, inner.double(), outer.double()),
        inputs,
    )


@pytest.mark.parametrize(
    ("b", "n", "width", "heads", "dim"), [(64, 17, 64, 1, 64), (1, 1, 16, 1, 16), (3, 50, 32, 4, 16)]
)
def test_projection_is_the_plain_formula(b, n, width, heads, dim):
    torch.manual_seed(1)

    def plain(x, norm_weight, norm_bias, weight):
        y = functional.linear(functional.layer_norm(x, x.shape[-1:], norm_weight, norm_bias), weight)
        return torch.cat(y.reshape(b, n, 3, heads, dim).permute(2, 0, 3, 1, 4).unbind())

    inputs = leaves((b, n, width), width, width, (3 * heads * dim, width))
    compare(lambda *t: torch.cat(FusedProjection.apply((1e-5, heads), *t)), plain, inputs)


@pytest.mark.parametrize("dropped", [0, P])
@pytest.mark.parametrize(
    ("b", "h", "n", "d"), [(64, 1, 17, 64), (2, 3, 1, 16), (2, 2, 64, 32), (1, 1, 16, 48), (1, 1, 24, 16)]
)
def test_attention_is_the_plain_formula_with_the_same_mask(b, h, n, d, dropped):
    torch.manual_seed(2)
    columns = -(-n // 16) * 16
    kept = factors(9, dropped, 0, 1, b * h * n, n, columns)[:, :n].reshape(b, h, n, n).double()

    def plain(q, k, v):
        return ((q @ k.mT * 0.3).softmax(-1) * kept) @ v

    inputs = leaves(*[(b, h, n, d)] * 3)
    compare(lambda *t: FusedAttention.apply((0.3, 9, dropped), *t), plain, inputs)


def test_gelu_is_exact_to_the_rounding_of_float32():
    """Identity weights show GELU itself: with unit width 16 the LayerNorm is undone by its weight and bias."""
    x = torch.linspace(-12, 12, 16 * 4001).reshape(-1, 16)
    mean, deviation = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False).add(1e-5).sqrt()
    unit, zero, eye = torch.ones(16), torch.zeros(16), torch.eye(16)
    y = ((x - mean) / deviation)[None].contiguous()
    spread = 20 * y.flatten()  # entries of LN(y) are about those of y; a weight of 20 spreads them over the line
    found = FusedFeedForward.apply((1e-12, 0, 0, 0), y, 20 * unit, zero, eye, zero, eye, zero).flatten()
    hidden = functional.layer_norm(y.double(), (16,), 20 * unit.double(), None, 1e-12).flatten()
    assert float(spread.abs().max()) > 15
    error = (found.double() - functional.gelu(hidden)).abs()
    assert float((error / hidden.abs().clamp_min(1)).max()) < 1e-6


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_law_of_the_dropout(p):
    """The rate, and no correlation between neighbours in a row, between rows, between streams and between seeds."""
    rows, width = 2000, 160
    kept = (factors(1, threshold(p), 0, 2, rows, CHUNK, width) > 0).double()
    spread = (p * (1 - p) / (rows * width)) ** 0.5
    assert abs(float(kept.mean()) - (1 - p)) < 4 * spread
    columns = kept.mean(0)
    assert float((columns - (1 - p)).abs().max()) < 5 * (p * (1 - p) / rows) ** 0.5
    centred = (kept - (1 - p)) / (p * (1 - p)) ** 0.5
    others = [(factors(s, threshold(p), f, 2, rows, CHUNK, width) > 0).double() for s, f in ((1, 1), (2, 0), (0, 0))]
    pairs = [
        *((centred[:, : width - k], centred[:, k:]) for k in (1, 2, 4, 8, 16)),
        *((centred[:-k], centred[k:]) for k in (1, CHUNK)),
        *((centred, (other - (1 - p)) / (p * (1 - p)) ** 0.5) for other in others),
    ]
    for one, two in pairs:
        assert abs(float((one * two).mean())) < 5 / one.numel() ** 0.5


def test_scale_of_what_stays():
    kept = factors(3, threshold(0.1), 0, 1, 100, CHUNK, 16)
    assert set(kept.unique().tolist()) == {0.0, float(torch.tensor(65536 / (65536 - threshold(0.1))))}


def lvit(**changes):
    torch.manual_seed(0)
    return LViT(LViTConfig(depth=2, **changes))


IMAGES, LABELS = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(1)), torch.tensor([1, 2, 3, 4, 5])


def test_evaluation_and_state_are_those_of_the_plain_model():
    plain = lvit().eval()
    fused = with_fused_step(copy.deepcopy(plain))
    assert torch.equal(plain(IMAGES), fused(IMAGES))
    assert list(plain.state_dict()) == list(fused.state_dict())
    assert [name for name, _ in plain.named_modules()] == [name for name, _ in fused.named_modules()]
    assert not any(module.training for module in fused.modules())
    kinds = [type(module) for module in fused.modules()]
    assert kinds.count(FastAttention) == kinds.count(FastFeedForward) == 2


@pytest.mark.parametrize("changes", [{}, {"heads": 2, "dim_head": 32}, {"heads": 3, "dim_head": 16, "dim": 48}])
def test_gradients_of_the_model_without_dropout(changes):
    plain = lvit(dropout=0.0, emb_dropout=0.0, **changes)
    fused, wide = with_fused_step(copy.deepcopy(plain)), copy.deepcopy(plain).double()
    for model, images in ((fused, IMAGES), (wide, IMAGES.double())):
        functional.cross_entropy(model(images), LABELS).backward()
    for (name, found), true in zip(fused.named_parameters(), wide.parameters(), strict=True):
        assert float((found.grad.double() - true.grad).norm() / true.grad.norm()) < 1e-5, name


def test_the_seed_of_torch_decides_everything():
    model = with_fused_step(lvit())
    found = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        model.zero_grad()
        loss = functional.cross_entropy(model(IMAGES), LABELS)
        loss.backward()
        found.append((loss, *(p.grad for p in model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True))
    assert not torch.equal(found[0][0], found[2][0])


def test_the_mean_over_dropouts_is_that_of_the_plain_model():
    torch.manual_seed(3)
    x, plain = torch.randn(2, 17, 64), lvit(dropout=0.2).transformer.layers[0][1]
    fused = FastFeedForward(plain)
    with torch.no_grad():
        runs = [torch.stack([block(x) for _ in range(3000)]) for block in (plain, fused)]
    apart = (runs[0].mean(0) - runs[1].mean(0)) / ((runs[0].var(0) + runs[1].var(0)) / 3000).sqrt()
    assert float(apart.abs().max()) < 5
    ratio = runs[0].var(0) / runs[1].var(0)
    assert 0.97 < float(ratio.mean()) < 1.03


def same_as_plain(block, x, seed=0):
    """Whether the fused block did what the plain one does, from the same state of torch's generator."""
    kind = FeedForward if isinstance(block, FastFeedForward) else type(block).__mro__[1]
    torch.manual_seed(seed)
    found = block(x)
    torch.manual_seed(seed)
    return torch.equal(found, kind.forward(block, x))


def test_falls_back_to_the_plain_block():
    for place in (0, 1):
        block = with_fused_step(lvit()).transformer.layers[0][place]
        x = torch.randn(2, 17, 64)
        assert not same_as_plain(block, x)
        assert same_as_plain(block.double(), x.double())
        block.float()
        with torch.autocast("cpu", torch.bfloat16):
            assert same_as_plain(block, x)
        inner = block.to_qkv if place == 0 else block.net[1]
        hook = inner.register_forward_hook(lambda *_: None)
        assert same_as_plain(block, x)
        hook.remove()
        assert not same_as_plain(block, x.transpose(0, 1).contiguous().transpose(0, 1))  # strides are no obstacle
    odd = with_fused_step(lvit(dim=40, mlp_dim=24, heads=2, dim_head=12))
    assert all(same_as_plain(block, torch.randn(2, 17, 40)) for block in odd.transformer.layers[0])


def test_values_fall_back_to_torch():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 17, 16)
    plain = functional.scaled_dot_product_attention
    mask = torch.rand(17, 17) < 0.7
    for options in ({"attn_mask": mask}, {"is_causal": True}):
        assert torch.equal(plain(q, k, v.as_subclass(Values), **options), plain(q, k, v, **options))
    assert torch.equal(
        plain(q.double(), k.double(), v.double().as_subclass(Values)), plain(*(t.double() for t in (q, k, v)))
    )
    assert torch.allclose(plain(q, k, v.as_subclass(Values), scale=0.7), plain(q, k, v, scale=0.7), atol=1e-6)
    assert type(v.as_subclass(Values) + 1) is torch.Tensor


def test_a_second_derivative_is_an_error():
    x = torch.randn(1, 17, 64, requires_grad=True)
    block = with_fused_step(lvit()).transformer.layers[0][1]
    with pytest.raises(GeoattnError, match="second derivative"):
        torch.autograd.grad(block(x).sum(), x, create_graph=True)
    model = with_fused_step(lvit())
    with LipschitzRegulariser().attach(model) as handle:
        model(IMAGES)
        with pytest.raises(GeoattnError, match="second derivative"):
            handle.penalty()


def test_not_a_number_is_not_hidden():
    model = with_fused_step(lvit())
    images = IMAGES.clone()
    images[2, 0, 3, 3] = torch.nan
    bad = model(images).isnan().any(-1)
    assert bad.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ga.VarianceRegulariser("increase", gamma=3.0),
        lambda: RowEntropy("decrease"),
        lambda: ga.CurvatureRegulariser("increase", edges=20, seed=0),
    ],
    ids=["variance", "entropy", "curvature"],
)
def test_regularisers_see_the_same_attention(make):
    plain = lvit(dropout=0.0, emb_dropout=0.0)
    fused, found = with_fused_step(copy.deepcopy(plain)), []
    for model in (plain, fused):
        with make().attach(model) as handle:
            loss = functional.cross_entropy(model(IMAGES), LABELS)
            penalty = handle.penalty(loss)
            (loss + penalty).backward()
            found.append((penalty.detach(), [p.grad for p in model.parameters()], handle.figures()))
    assert float((found[0][0] - found[1][0]).abs() / found[0][0].abs()) < 1e-4
    assert found[0][2].keys() == found[1][2].keys()
    for one, two in zip(found[0][1], found[1][1], strict=True):
        assert float((one - two).norm() / one.norm().clamp_min(1e-6)) < 1e-3


def test_edge_mask_changes_what_is_computed():
    plain = lvit(dropout=0.0, emb_dropout=0.0)
    fused, found = with_fused_step(copy.deepcopy(plain)), []
    for model in (plain, fused):
        torch.manual_seed(4)
        with EdgeMask(0.5).attach(model):
            found.append(model(IMAGES))
    free = fused(IMAGES)
    assert torch.allclose(found[0], found[1], atol=1e-5)
    assert not torch.allclose(found[1], free, atol=1e-3)


def test_capture_gives_the_maps():
    plain = lvit(dropout=0.0, emb_dropout=0.0)
    fused, found = with_fused_step(copy.deepcopy(plain)), []
    for model in (plain, fused):
        with ga.capture(model) as record:
            model(IMAGES)
        record.check()
        found.append(torch.stack([call.attention() for call in record]))
    assert torch.allclose(*found, atol=1e-6)


def test_seed_is_drawn_from_the_default_generator():
    torch.manual_seed(11)
    first = draw_seed()
    torch.manual_seed(11)
    assert draw_seed() == first >= 0
    assert draw_seed() != first


class CutError(Exception):
    """Ends a run early."""


def test_a_run_that_is_cut_goes_on_to_the_same_bits(tmp_path):
    recipe = Recipe(
        "digits", epochs=2, limit=64, test_limit=16, batch=16, changes={"depth": 2},
        regularisers=[("variance", {"direction": "increase", "strength": 0.3}), ("edge-mask", {"rate": 0.2})],
    )  # fmt: skip

    def run(name, progress=None):
        model = with_fused_step(ga.load_model(recipe.filled().model, weights="random", seed=recipe.seed, depth=2))
        return train(recipe, tmp_path / name, model=model, checkpoint_every=1, progress=progress)

    def cut(step, _):
        if step == 3:
            raise CutError

    with pytest.raises(CutError):
        run("cut", cut)
    whole, resumed = run("whole"), run("cut")
    assert whole.history == resumed.history
    for one, two in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)
