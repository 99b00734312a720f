"""FGSM: closed form on a linear model, optimality to first order, units, padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import geoattn as ga
from geoattn.datasets.feed import feed
from geoattn.perturbations.attacks.gradient_sign import _Embeddings, _Pixels, _sign, fgsm
from geoattn.perturbations.classifier_accuracy import predictions


@pytest.fixture(scope="module")
def digits():
    return ga.load_data("digits", split="test").subset(range(96))


@pytest.fixture(scope="module")
def model():
    return ga.load_model("lvit-digits")


class Linear(nn.Module):
    """Two classes, logit difference w.x - b over the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, 64))
        self.seen: list[torch.Tensor] = []

    def forward(self, images):
        self.seen.append(images.detach())
        score = images.flatten(1) @ self.w
        return torch.stack([score, torch.zeros_like(score)], 1)


def toy(count: int = 40) -> ga.datasets.Dataset:
    rng = np.random.default_rng(0)
    images = rng.integers(60, 190, (count, 1, 8, 8)).astype(np.uint8)
    labels = (images.reshape(count, -1) @ np.linspace(-1, 1, 64) < 0).astype(np.int64)
    return ga.datasets.Dataset("toy", "test", "here", ("plus", "minus"), labels, np.arange(count), "", images=images)


def test_on_a_linear_model_the_score_falls_by_the_step_times_the_sum_of_weights():
    model, data = Linear(), toy()
    step = 0.01
    result = fgsm(model, data, steps=(step,))
    score = data.pixels().flatten(1).double() @ model.w.detach().double()
    moved = torch.cat(model.seen[1::2]).flatten(1).double() @ model.w.detach().double()
    away = torch.where(data.targets() == 0, -1.0, 1.0).double()
    torch.testing.assert_close(moved, score + away * step * model.w.abs().sum().double(), rtol=0, atol=1e-5)
    expected = (torch.where(moved > 0, 0, 1) == data.targets()).double().mean()
    assert result.drops[0].perturbed == pytest.approx(float(expected))
    assert result.moved.all()


def test_no_other_small_step_raises_the_loss_as_much(model, digits):
    images, labels = digits.pixels(), digits.targets()
    attack = _Pixels(images, 0.5, 0.5)
    sign, clean = _sign(model, attack, labels)
    np.testing.assert_array_equal(clean, predictions(model, digits))
    inside = images.clamp(0.01, 0.99)  # so that nothing is cut

    def loss(change):
        with torch.no_grad():
            return functional.cross_entropy(model.double()(inside.double() + 1e-4 * change), labels, reduction="none")

    sign, _ = _sign(model.double(), _Pixels(inside.double(), 0.5, 0.5), labels)
    best = loss(sign) - loss(torch.zeros_like(sign))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        other = torch.randint(0, 2, sign.shape, generator=generator) * 2.0 - 1
        assert (best >= loss(other.double()) - loss(torch.zeros_like(sign)) - 1e-9).all()
    model.float()


def test_more_is_worse_and_nothing_is_clean(model, digits):
    result = fgsm(model, digits, steps=(0.0, 0.02, 0.05, 0.1))
    np.testing.assert_array_equal(result.predicted[0], predictions(model, digits))
    rhos = [drop.rho for drop in result.drops]
    assert rhos[0] == 0
    assert rhos == sorted(rhos)
    assert rhos[-1] > 0.2
    table = result.to_pandas()
    assert list(table.step) == [0.0, 0.02, 0.05, 0.1]
    assert (table.unit == "pixels in [0, 1]").all()
    assert (table.moved == 1).all()


def test_the_worst_is_worse_than_random_signs(model, digits):
    """The same size of change, without looking at the gradient."""
    step = 0.1
    signs = torch.randint(0, 2, digits.pixels().shape, generator=torch.Generator().manual_seed(1)) * 2.0 - 1
    with torch.no_grad():
        found = model((digits.pixels() + step * signs).clamp(0, 1)).argmax(1)
    random = float((found == digits.targets()).double().mean())
    assert fgsm(model, digits, steps=(step,)).drops[0].perturbed < random - 0.1


def test_parameters_mode_and_gradients_are_left_alone(model, digits):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    fgsm(model, digits.subset(range(8)), steps=(0.1,))
    assert model.training
    model.eval()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_a_sample_does_not_depend_on_its_batch(model, digits):
    whole = fgsm(model, digits, steps=(0.05,))
    part = fgsm(model, digits.subset([50, 3, 77]), steps=(0.05,))
    np.testing.assert_array_equal(part.predicted[0], whole.predicted[0][[50, 3, 77]])


def test_steps_are_pixels_before_normalising_and_stay_in_range():
    vit = ga.load_model("vit-b16", weights="random", classes=10, image_size=16, patch_size=8, hidden_size=32,
                        num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)  # fmt: skip
    data = ga.load_data("digits", split="test").subset(range(8))
    mean, std = torch.tensor([0.4, 0.5, 0.6])[:, None, None], torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    (batch,) = feed(data, vit, mean=mean, std=std)
    attack = _Pixels(batch, mean, std)
    sign, _ = _sign(vit, attack, data.targets())
    moved = attack.batch(attack.move(sign, 0.1))["pixel_values"] * std + mean
    pixels = batch["pixel_values"] * std + mean
    assert moved.min() > -1e-6
    assert moved.max() < 1 + 1e-6
    inside = (pixels > 0.1) & (pixels < 0.9) & (sign != 0)
    torch.testing.assert_close((moved - pixels).abs()[inside], torch.full((int(inside.sum()),), 0.1), rtol=0, atol=1e-5)
    assert fgsm(vit, data, steps=(0.0, 0.1), mean=mean, std=std).drops[0].rho == 0


# ---- texts


class Words:
    """A tokenizer: a word is its length."""

    pad_token, model_max_length = "", 32

    def __call__(self, texts, **_):
        ids = [[1 + len(word) for word in text.split()] for text in texts]
        most = max(map(len, ids))
        return {
            "input_ids": [i + [0] * (most - len(i)) for i in ids],
            "attention_mask": [[1] * len(i) + [0] * (most - len(i)) for i in ids],
        }


@pytest.fixture(scope="module")
def bert():
    return ga.load_model("bert-tiny", weights="random", classes=2, vocab_size=40)


@pytest.fixture(scope="module")
def texts(bert):
    words = ("a bb ccc", "dddd ee", "f gg hhh iiii jjjjj", "kk", "lll mm n o p q") * 3
    data = ga.datasets.Dataset(
        "toy", "test", "here", ("a", "b"), np.zeros(15, np.int64), np.arange(15), "", texts=words
    )
    labels = predictions(bert, data, Words())  # right on all of them
    return ga.datasets.Dataset("toy", "test", "here", ("a", "b"), labels, np.arange(15), "", texts=words)


def test_embeddings_of_real_tokens_move_by_their_root_mean_square(bert, texts):
    batch = next(iter(feed(texts, bert, Words())))
    attack = _Embeddings(bert, batch)
    sign, clean = _sign(bert, attack, texts.targets()[:8])
    np.testing.assert_array_equal(clean, texts.labels[:8])
    change = attack.move(sign, 0.5) - attack.start
    real = batch["attention_mask"].bool()
    rms = attack.start[real].square().mean().sqrt()
    assert (change[~real] == 0).all()
    torch.testing.assert_close(change[real].abs(), (0.5 * rms).expand_as(change[real]), rtol=1e-4, atol=1e-7)


def test_texts_fall_to_large_steps_only(bert, texts):
    result = fgsm(bert, texts, Words(), steps=(0.0, 1e-6, 5.0))
    assert [drop.rho for drop in result.drops[:2]] == [0, 0]
    assert result.drops[2].rho > 0.5
    assert result.unit == "rms of the embeddings"


class Deaf(nn.Module):
    def forward(self, images):
        return 0.0 * images.flatten(1)[:, :10]


def test_a_gradient_of_nothing_is_told(digits):
    result = fgsm(Deaf(), digits, steps=(0.1,))
    assert not result.moved.any()
    assert result.drops[0].rho == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m, d: fgsm(m, d, steps=()), "at least one"),
        (lambda m, d: fgsm(m, d, steps=(0.2, 0.1)), "ascending"),
        (lambda m, d: fgsm(m, d, steps=(-0.1,)), "non-negative"),
        (lambda m, d: fgsm(m, d.subset([])), "holds no sample"),
        (lambda m, d: fgsm(Linear(), d), "has 2 classes, but the data has label"),
    ],
)
def test_bad_input(make, words, model, digits):
    with pytest.raises(ga.GeoattnError, match=words):
        make(model, digits)


def test_texts_need_a_model_with_embeddings(texts):
    with pytest.raises(ga.GeoattnError, match="get_input_embeddings"):
        fgsm(Linear(), texts, Words())
