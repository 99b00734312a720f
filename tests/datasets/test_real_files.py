"""The real data sets, where their folder is at hand."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from geoattn.datasets.catalogue import CATALOGUE, CHECKSUMS
from geoattn.datasets.loader import DATA_VARIABLE, load_data


@pytest.fixture
def root():
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        pytest.skip(f"set {DATA_VARIABLE} to a folder with the data sets to run this test")
    return Path(folder)


def of(root, path):
    """A part of the data folder, or a skip that says what is missing."""
    if not (root / path).exists():
        pytest.skip(f"{DATA_VARIABLE}={root} has no {path}")
    return root / path


REAL = [
    ("mnist", "mnist", "idx", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], [5, 0, 4, 1, 9]),
    ("fashion-mnist", "fashion-mnist", "idx", [6000] * 10, [9, 0, 0, 3, 0]),
    ("cifar10", "cifar10-jpeg", "parquet", [5000] * 10, None),
    ("sst2", "sst2", "parquet", [29780, 37569], [0, 0, 1, 0, 0]),
    ("imdb", "imdb", "parquet", [12500, 12500], None),
]


@pytest.mark.parametrize(("name", "folder", "kind", "counts", "first"), REAL, ids=[r[0] for r in REAL])
def test_real_files(root, name, folder, kind, counts, first):
    of(root, folder)
    for split in ("train", "test"):
        data = load_data(name, root, split, limit=64)
        entry = CATALOGUE[name]
        assert len(data) == 64
        assert (data.images is None) == (entry.shape is None)
        assert data.checksum == CHECKSUMS[data.name, kind, split]
        assert data.source == str(root / folder)
        if data.images is None:
            assert len(set(data.labels)) == 2  # IMDb is sorted by label: the first 64 would all be negative
            assert all(text == text.strip() and text for text in data.texts)
        else:
            assert data.images.shape == (64, *entry.shape)
            assert 0.1 < float(data.pixels().mean()) < 0.6
    if name == "cifar10":
        assert data.name == "CIFAR-10 (JPEG)"
        return
    whole = load_data(name, root)
    assert np.bincount(whole.labels).tolist() == counts
    if first:
        assert whole.labels[:5].tolist() == first


def test_cifar_pixels_agree_with_the_lossless_part(root):
    """JPEG keeps about 30 dB, so the nearest image of the lossless part is the same one, with its label."""
    of(root, "cifar10-jpeg"), of(root, "cifar10-lossless-6102.npz")
    exact = load_data("cifar10-lossless", root, "test")
    assert exact.name == "CIFAR-10 (first 6,102)"
    assert len(exact) == 1017
    jpeg = load_data("cifar10", root, "test", limit=300)
    a = jpeg.images.reshape(len(jpeg), -1).astype(np.float32)
    b = exact.images.reshape(len(exact), -1).astype(np.float32)
    distance = np.sqrt(((a[:, None, :3072:8] - b[None, :, :3072:8]) ** 2).mean(-1))
    match = distance.min(1) < 16
    assert match.sum() >= 10
    assert np.array_equal(jpeg.labels[match], exact.labels[distance.argmin(1)][match])


def test_headlines_are_divided_without_a_leak(root):
    of(root, "headlines")
    train, test = load_data("headlines", root), load_data("headlines", root, "test")
    assert len(train) + len(test) == 28_619
    assert not set(train.texts) & set(test.texts)
    assert abs(len(test) / 28_619 - 0.2) < 0.005
    assert abs(train.labels.mean() - test.labels.mean()) < 0.02


def test_headlines_split_does_not_depend_on_the_order(root, tmp_path):
    path = of(root, "headlines") / "Sarcasm_Headlines_Dataset_v2.json.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    (tmp_path / "headlines").mkdir()
    (tmp_path / "headlines" / "data.json").write_text("\n".join(reversed(lines)))
    for split in ("train", "test"):
        turned, straight = load_data("headlines", tmp_path, split), load_data("headlines", root, split)
        assert turned.checksum == straight.checksum
        assert turned.texts == straight.texts[::-1]


def test_variable_names_the_root(root, monkeypatch):
    of(root, "mnist")
    monkeypatch.setenv(DATA_VARIABLE, str(root))
    assert load_data("mnist", split="test", limit=3).source == str(root / "mnist")
