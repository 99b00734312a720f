"""Perturbations of images: identities, sizes of displacements, shares. The laws of all are in test_contract.py."""

from __future__ import annotations

import kornia
import numpy as np
import pytest
import torch
from torch.nn import functional

import geoattn as ga
from geoattn.datasets.loader import load_data
from geoattn.perturbations import Combined, perturb, perturb_dataset
from geoattn.perturbations.images import (
    Blur,
    Elastic,
    Flip,
    Perspective,
    Rotation,
    elastic_displacement,
    gaussian,
)
from geoattn.perturbations.text import WordSwap


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def torchvision_displacement(field: torch.Tensor, alpha: float, sigma: float) -> torch.Tensor:
    """The formula of torchvision, for square images: blur with reflection, times alpha / size. (1, h, w, 2)."""
    size = field.shape[-1]
    k = int(8 * sigma + 1)
    k += k % 2 == 0
    x = torch.linspace(-(k - 1) / 2, (k - 1) / 2, k, dtype=field.dtype)
    kernel = torch.exp(-0.5 * (x / sigma) ** 2)
    kernel = kernel / kernel.sum()
    padded = functional.pad(field[:, None], [k // 2] * 4, mode="reflect")
    blurred = functional.conv2d(padded, (kernel[:, None] * kernel)[None, None])
    return (blurred[:, 0] * alpha / size).permute(1, 2, 0)[None]


def torchvision_elastic(image: torch.Tensor, displacement: torch.Tensor) -> torch.Tensor:
    size = image.shape[-1]
    line = torch.linspace((-size + 1) / size, (size - 1) / size, size, dtype=image.dtype)
    y, x = torch.meshgrid(line, line, indexing="ij")
    grid = torch.stack([x, y], -1)[None] + displacement
    return functional.grid_sample(image[None], grid, align_corners=False)[0]


# ---- each kind


def test_flip_is_the_mirror_image_and_twice_is_nothing():
    images = noise(3, 2, 5, 4)
    flipped = perturb(images, Flip(1.0)).images
    np.testing.assert_array_equal(flipped.numpy(), images.numpy()[..., ::-1])
    assert torch.equal(perturb(flipped, Flip(1.0)).images, images)
    assert torch.equal(perturb(images, Flip(1.0, "vertical")).images, images.flip(-2))


@pytest.mark.parametrize("sigma", [0.1, 0.7, 1.9])
def test_blur_is_that_of_kornia(sigma):
    image = noise(3, 28, 20)
    radius = int(np.ceil(4 * sigma))
    reference = kornia.filters.gaussian_blur2d(image[None], (2 * radius + 1,) * 2, (sigma, sigma), "reflect")[0]
    torch.testing.assert_close(Blur(1.0).apply(image, {"sigma": sigma}), reference, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 3), (3, 8, 8)])
def test_a_blur_wider_than_the_image_keeps_constants_and_the_mean_of_nothing_else(shape):
    assert torch.allclose(gaussian(torch.full(shape, 0.3), 9.0, 40), torch.full(shape, 0.3))
    if shape[1] > 1:
        assert gaussian(noise(*shape), 9.0, 40).std() < noise(*shape).std()


def test_blur_reflects_like_numpy_when_it_reflects_more_than_once():
    line = noise(1, 1, 4)
    padded = np.pad(line[0, 0].numpy(), 9, mode="reflect")
    kernel = np.exp(-0.5 * (np.arange(-9, 10) / 3.0) ** 2)
    expected = np.convolve(padded, kernel / kernel.sum(), mode="valid")
    np.testing.assert_allclose(gaussian(line, 3.0, 9)[0, 0].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("quarter", [-1, 1, 2])
def test_rotation_by_quarters_is_exact(quarter):
    """Positive is counter-clockwise."""
    image = noise(2, 9, 9)
    turned = Rotation(1.0, 180.0).apply(image, {"degrees": 90.0 * quarter})
    torch.testing.assert_close(turned, torch.rot90(image, quarter, (-2, -1)), rtol=0, atol=1e-4)


def test_rotation_draws_its_angles_uniformly():
    result = perturb(noise(400, 1, 4, 4), Rotation(1.0, 30.0), seed=3)
    angles = np.array([p["rotation"]["degrees"] for p in result.parameters])
    assert abs(angles).max() <= 30
    assert abs(angles.mean()) < 4 * 30 / np.sqrt(3 * 400)
    assert abs(angles).max() > 29


def test_perspective_without_distortion_is_nothing():
    images = noise(4, 1, 28, 28)
    torch.testing.assert_close(perturb(images, Perspective(1.0, 0.0)).images, images, rtol=0, atol=1e-4)


def test_perspective_moves_the_corners_by_what_it_recorded():
    """A bright spot in each corner lands where the record says."""
    size = 41
    image = torch.zeros(1, size, size)
    places = [(2, 2), (size - 3, 2), (size - 3, size - 3), (2, size - 3)]  # x, y
    drawn = Perspective(1.0).parameters(np.random.default_rng(5), size, size)
    corners = torch.tensor([[0.0, 0], [size - 1, 0], [size - 1, size - 1], [0, size - 1]])
    moved = corners + torch.tensor(drawn["corners"])
    matrix = _homography(corners.double().numpy(), moved.double().numpy())
    for x, y in places:
        spot = image.clone()
        spot[0, y - 1 : y + 2, x - 1 : x + 2] = 1.0
        after = Perspective(1.0).apply(spot, drawn)[0].double().numpy()
        rows, columns = np.mgrid[:size, :size]
        centre = np.array([(columns * after).sum(), (rows * after).sum()]) / after.sum()
        u, v, w = matrix @ [x, y, 1.0]
        np.testing.assert_allclose(centre, [u / w, v / w], atol=0.35)


def _homography(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    return np.append(np.linalg.solve(np.array(rows), target.ravel()), 1.0).reshape(3, 3)


def test_perspective_corners_move_inwards_and_fill_their_range():
    rng = np.random.default_rng(0)
    drawn = np.array([Perspective(1.0, 0.5).parameters(rng, 28, 40)["corners"] for _ in range(500)])
    inwards = drawn * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    assert (inwards >= 0).all()
    np.testing.assert_allclose(inwards.max(axis=(0, 1)), [10.0, 7.0], rtol=0.02)
    np.testing.assert_allclose(inwards.mean(axis=(0, 1)), [5.0, 3.5], rtol=0.05)


# ---- elastic: the size of the displacement


@pytest.mark.parametrize("size", [28, 32])
def test_elastic_is_torchvisions_formula(size):
    """The same noise, alpha = 75 and sigma = 5: the same field and the same image."""
    raw = 2 * noise(2, size, size, seed=1).double() - 1
    expected = torchvision_displacement(raw, 75.0, 5.0)
    ours = elastic_displacement(raw, 75.0, 5.0)
    torch.testing.assert_close(ours.permute(1, 2, 0)[None], expected, rtol=0, atol=1e-12)
    image = noise(1, size, size, seed=2)
    elastic = Elastic()
    drawn = elastic.parameters(np.random.default_rng(0), size, size)
    own = torch.from_numpy(np.random.default_rng(drawn["seed"]).uniform(-1, 1, (2, size, size)))
    reference = torchvision_elastic(image, torchvision_displacement(own, 75.0, 5.0).float())
    torch.testing.assert_close(elastic.apply(image, drawn), reference, rtol=0, atol=1e-5)


def test_elastic_moves_pixels_by_the_size_it_states():
    """1.22 pixels per axis inside a large image, the same at 28 pixels with its reflected border a little more."""
    inside = []
    for seed in range(20):
        raw = torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, (2, 96, 96)))
        inside.append(elastic_displacement(raw, 75.0, 5.0)[:, 24:-24, 24:-24] * 96 / 2)
    rms = float(torch.stack(inside).square().mean().sqrt())
    assert rms == pytest.approx(75 / (4 * np.sqrt(3 * np.pi) * 5), rel=0.06)
    drawn = [Elastic().parameters(np.random.default_rng(s), 28, 28) for s in range(100)]
    assert 1.22 < np.mean([d["rms_pixels"] for d in drawn]) < 2.2
    assert max(d["max_pixels"] for d in drawn) < 28 / 2


def test_the_recorded_displacement_is_the_one_of_the_image():
    """A ramp shows the displacement: its value at x is x + dx."""
    size = 28
    ramp = torch.linspace(0, 1, size, dtype=torch.float64).expand(1, size, size)
    elastic = Elastic()
    drawn = elastic.parameters(np.random.default_rng(4), size, size)
    shift = (elastic.apply(ramp, drawn)[0] - ramp[0]) * (size - 1)
    field = elastic._field(drawn["seed"], size, size)[0] * size / 2
    middle = slice(8, -8)
    torch.testing.assert_close(shift[middle, middle], field[middle, middle], rtol=0, atol=1e-9)


def test_kornias_own_alpha_of_75_would_throw_the_image_away():
    """Why the unit is converted: 75 in [-1, 1] coordinates."""
    raw = 2 * noise(1, 2, 28, 28) - 1
    ours = elastic_displacement(raw[0].double(), 75.0, 5.0).abs().mean()
    kornias = kornia.filters.gaussian_blur2d(raw, (41, 41), (5.0, 5.0), "constant").abs().mean() * 75
    assert ours < 0.2 < 0.5 < kornias


def test_elastic_for_another_size_is_the_same_deformation():
    scaled = Elastic().for_size(8)
    assert (scaled.alpha, scaled.sigma) == pytest.approx((75 * (8 / 28) ** 2, 40 / 28))
    large = [Elastic().parameters(np.random.default_rng(s), 28, 28)["rms_pixels"] / 28 for s in range(200)]
    small = [scaled.parameters(np.random.default_rng(s), 8, 8)["rms_pixels"] / 8 for s in range(200)]
    assert np.mean(small) == pytest.approx(np.mean(large), rel=0.1)


# ---- seeds and records


@pytest.mark.parametrize("kind", [Flip, Blur, Rotation, Elastic, Perspective])
def test_the_share_of_hits_is_p_and_less_is_a_part_of_more(kind):
    image = noise(1, 2, 2)
    few, many = ([kind(p).draw(np.random.default_rng(s), image) for s in range(1500)] for p in (0.2, 0.4))
    hits = np.array([[drawn is not None for drawn in draws] for draws in (few, many)])
    assert hits[0].mean() == pytest.approx(0.2, abs=0.04)
    assert hits[1].mean() == pytest.approx(0.4, abs=0.05)
    assert all(b == a for a, b in zip(few, many, strict=True) if a is not None)
    images = image.expand(20, -1, -1, -1)
    assert not perturb(images, kind(0.0)).hit.any()
    assert perturb(images, kind(1.0)).hit.all()


def test_parts_of_a_combination_are_independent_and_repeatable():
    images = noise(1000, 1, 2, 2)
    result = perturb(images, Combined((Flip(0.5), Blur(0.5), Blur(0.5))), seed=0)
    hits = {kind: np.array([kind in p for p in result.parameters]) for kind in ("flip", "blur", "blur 2")}
    for one in hits:
        for two in hits:
            if one < two:
                assert abs((hits[one] & hits[two]).mean() - 0.25) < 0.05
    single = perturb(images, Flip(0.5), seed=0)
    np.testing.assert_array_equal(single.hit, hits["flip"])
    table = result.to_pandas()
    assert len(table) == sum(h.sum() for h in hits.values())
    assert table[table.kind == "flip"].parameters.iloc[0] == "direction=horizontal"


def test_a_perturbed_data_set_is_a_data_set():
    digits = load_data("digits", split="test")
    whole, record = perturb_dataset(digits, Rotation(0.4), seed=2)
    assert torch.equal(whole.pixels(), record.images)
    part, _ = perturb_dataset(digits.subset([7, 300, 2]), Rotation(0.4), seed=2)
    assert torch.equal(part.pixels(), whole.pixels()[[7, 300, 2]])
    assert torch.equal(whole.subset([7, 300, 2]).pixels(), part.pixels())
    np.testing.assert_array_equal(whole.subset([7, 300]).labels, digits.labels[[7, 300]])
    assert whole.name == "digits, rotation 0.4"


# ---- bad input


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Flip(1.5), "Flip: p must be a number from 0 to 1; got 1.5"),
        (lambda: Flip(0.1, "diagonal"), "'horizontal' or 'vertical'"),
        (lambda: Blur(0.1, (2.0, 1.0)), "0 < low <= high"),
        (lambda: Rotation(0.1, 200.0), "between 0 and 180"),
        (lambda: Elastic(sigma=0.0), "sigma > 0"),
        (lambda: Perspective(distortion=1.2), "Perspective: distortion"),
        (lambda: Combined(()), "at least one; got none"),
        (lambda: Combined((Flip(0.1), WordSwap(0.4))), "images and texts"),
        (lambda: perturb(noise(2, 3, 3), Flip(0.1)), r"\(b, c, height, width\); got torch.float32 \(2, 3, 3\)"),
        (lambda: perturb(noise(2, 1, 3, 3) * 3, Flip(0.1)), "Perturb before normalising"),
        (lambda: perturb(noise(2, 1, 3, 3) * torch.nan, Flip(0.1)), "pixels must lie"),
        (lambda: perturb(noise(0, 1, 3, 3), Flip(0.1)), "empty"),
        (lambda: perturb(["a"], Flip(0.1)), "got list"),
        (lambda: perturb(noise(2, 1, 3, 3), "flip"), "expected a perturbation"),
        (lambda: perturb(noise(2, 1, 3, 3), Flip(0.1), -1), "seed must be"),
        (lambda: perturb(noise(2, 1, 3, 3), Flip(0.1), rows=[1]), "rows must be 2"),
        (lambda: perturb_dataset(load_data("digits"), WordSwap(0.4)), "digits holds images"),
    ],
)
def test_bad_input_is_one_clear_line(make, words):
    with pytest.raises(ga.GeoattnError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
