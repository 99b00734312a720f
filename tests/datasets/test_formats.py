"""Formats of local files: what is read, and what is refused in words."""

import gzip
import json
import shutil

import numpy as np
import pytest

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.datasets.formats import decode
from geoattn.datasets.loader import load_data
from tests.datasets.made_files import parquet, png, write_idx


@pytest.fixture(scope="module")
def blank_mnist(tmp_path_factory):
    """A test set of MNIST's size with nothing on the images."""
    folder = tmp_path_factory.mktemp("root") / "mnist"
    write_idx(folder / "t10k-images-idx3-ubyte.gz", np.zeros((10_000, 28, 28)))
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.arange(10_000) % 10)
    return folder


@pytest.fixture
def mnist(blank_mnist, tmp_path):
    shutil.copytree(blank_mnist, tmp_path / "mnist")
    return tmp_path / "mnist"


def test_other_content_is_a_warning(mnist):
    with pytest.warns(GeoattnWarning, match=r"MNIST test .* differs from the copy .*SHA-256"):
        data = load_data("mnist", mnist.parent, "test", limit=2)
    assert data.images.max() == 0


def test_plain_idx_files_are_read(mnist):
    for path in list(mnist.glob("*.gz")):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    with pytest.warns(GeoattnWarning):
        assert len(load_data("mnist", mnist.parent, "test")) == 10_000


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data[:-200], r"not a complete gzip file"),
        (lambda data: data[:200] + bytes([data[200] ^ 255]) + data[201:], r"not a complete gzip file|holds more; get"),
        (lambda _: b"<html>404</html>", r"not a complete gzip file \(Not a gzipped file"),
        (lambda data: gzip.compress(gzip.decompress(data)[:-1]), r"10000 x 28 x 28 .* holds 7,839,999"),
        (lambda _: gzip.compress(b"nonsense nonsense"), r"not an idx file of 3 axes"),
    ],
    ids=["cut", "flipped", "html", "short", "other"],
)  # fmt: skip
def test_corrupt_archive(mnist, spoil, message):
    path = mnist / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(GeoattnError, match=message) as raised:
        load_data("mnist", mnist.parent, "test")
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_wrong_sizes(mnist):
    labels, images = mnist / "t10k-labels-idx1-ubyte.gz", mnist / "t10k-images-idx3-ubyte.gz"
    write_idx(labels, np.zeros(9_999))
    with pytest.raises(GeoattnError, match="10,000 inputs but 9,999 labels"):
        load_data("mnist", mnist.parent, "test")
    write_idx(labels, np.full(10_000, 10))
    with pytest.raises(GeoattnError, match=r"labels must lie in 0..9; got 10..10"):
        load_data("mnist", mnist.parent, "test")
    write_idx(images, np.zeros((10_000, 8, 8)))
    with pytest.raises(GeoattnError, match=r"shape \(1, 28, 28\) per image; got \(1, 8, 8\)"):
        load_data("mnist", mnist.parent, "test")
    write_idx(images, np.zeros((7, 28, 28)))
    write_idx(labels, np.zeros(7))
    with pytest.raises(GeoattnError, match="expected 10,000 rows of MNIST test; got 7"):
        load_data("mnist", mnist.parent, "test")


def test_missing_file_of_a_folder(mnist):
    with pytest.raises(GeoattnError, match=r"has no file train-images-idx3-ubyte.gz"):
        load_data("mnist", mnist.parent)


def test_parquet_of_texts_in_parts(tmp_path):
    for part, rows in enumerate((500, 372)):
        parquet(
            tmp_path / "sst2" / f"validation-0000{part}-of-00002.parquet",
            sentence=[f" text {part}.{i} " for i in range(rows)],
            label=[i % 2 for i in range(rows)],
            idx=list(range(rows)),
        )
    with pytest.warns(GeoattnWarning):
        data = load_data("sst2", tmp_path, "test")
    assert data.texts[0] == "text 0.0"
    assert data.texts[-1] == "text 1.371"
    assert data.classes == ("negative", "positive")
    with pytest.raises(GeoattnError, match="holds texts"):
        data.pixels()


def test_bad_parquet(tmp_path):
    path = tmp_path / "imdb" / "test.parquet"
    parquet(path, review=["good"], label=[1])
    with pytest.raises(GeoattnError, match="expected columns text and label; got review, label"):
        load_data("imdb", tmp_path, "test")
    parquet(path, text=["good", None], label=[1, 0])
    with pytest.raises(GeoattnError, match="some rows have no text or no label"):
        load_data("imdb", tmp_path, "test")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(GeoattnError, match="not a complete parquet file") as raised:
        load_data("imdb", tmp_path, "test")
    assert "\n" not in str(raised.value)


def test_bad_json_lines(tmp_path):
    (tmp_path / "headlines").mkdir()
    path = tmp_path / "headlines" / "x.json.gz"
    good = json.dumps({"headline": "a", "is_sarcastic": 1})
    path.write_bytes(gzip.compress(f"{good}\n{{broken\n".encode()))
    with pytest.raises(GeoattnError, match=r"line 2: expected a JSON object with headline and is_sarcastic"):
        load_data("headlines", tmp_path)
    path.write_bytes(gzip.compress(f"{good}\n{good}\n".encode())[:-9])
    with pytest.raises(GeoattnError, match="not a complete gzip file"):
        load_data("headlines", tmp_path)


def test_bad_npz(tmp_path):
    path = tmp_path / "cifar10-lossless-6102.npz"
    np.savez(path, other=np.zeros(3))
    with pytest.raises(GeoattnError, match="not a complete npz file"):
        load_data("cifar10-lossless", tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(GeoattnError, match="not a complete npz file"):
        load_data("cifar10-lossless", tmp_path)


def test_decode():
    random = np.random.default_rng(0)
    colour = random.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    assert np.array_equal(decode([png(x) for x in colour], (3, 32, 32), "x"), colour.transpose(0, 3, 1, 2))
    grey = random.integers(0, 256, (28, 28), dtype=np.uint8)
    assert np.array_equal(decode([png(grey)], (1, 28, 28), "x")[0, 0], grey)
    with pytest.raises(GeoattnError, match="x, row 1: not an image"):
        decode([png(grey), b"nothing"], (1, 28, 28), "x")
    with pytest.raises(GeoattnError, match="expected 28 x 28 pixels"):
        decode([png(grey[:5])], (1, 28, 28), "x")
