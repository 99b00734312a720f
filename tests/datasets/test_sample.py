from __future__ import annotations

import numpy as np

from geoattn.datasets.sample import SAMPLE_PATH, load_sample


def test_the_sample_is_small_and_is_attention():
    assert SAMPLE_PATH.stat().st_size < 150_000
    attention = load_sample()
    assert attention.shape == (4, 6, 4, 17, 17)
    assert attention.dtype == np.float32
    assert (attention > 0).all()
    assert np.abs(attention.sum(axis=-1, dtype=np.float64) - 1).max() < 1e-6


def test_the_sample_is_trained_attention_not_noise():
    """Heads differ from each other and from uniform attention, images from each other."""
    attention = load_sample()
    assert np.abs(attention - 1 / 17).max(axis=(-1, -2)).min() > 0.05
    for axis in (1, 2):
        assert np.abs(np.diff(attention, axis=axis)).max(axis=(-1, -2)).min() > 0.01


def test_the_images_come_with_it():
    with np.load(SAMPLE_PATH) as data:
        assert sorted(data.files) == ["attention", "images", "labels"]
        assert data["labels"].tolist() == [0, 1, 2, 3, 4, 5]
        assert data["images"].shape == (6, 8, 8)
        assert data["images"].max() == 16
