import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from geoattn.data import hub
from geoattn.data.catalogue import CATALOGUE, CHECKSUMS
from geoattn.data.formats import checksum, decode
from geoattn.data.loader import DATA_VARIABLE, load
from geoattn.errors import GeoattnError, GeoattnWarning


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


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


# ------------------------------------------------------------------------------------------------ embedded


def test_digits_needs_nothing(no_hub):
    train, test = load("digits"), load("digits", split="test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.images.shape[1:] == (1, 8, 8)
    assert set(test.labels) == set(range(10))
    pixels = train.pixels()
    assert (float(pixels.min()), float(pixels.max())) == (0.0, 1.0)
    assert train.targets().tolist() == train.labels.tolist()
    assert train.checksum != test.checksum


def test_result_cannot_be_changed():
    digits = load("digits", limit=5)
    for array in (digits.images, digits.labels, digits.rows):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        digits.name = "other"


def test_limit_is_random_nested_and_seeded():
    small, large = load("digits", limit=10), load("digits", limit=50)
    assert small.rows.tolist() == large.rows[:10].tolist()
    assert small.rows.tolist() != list(range(10))
    assert load("digits", limit=10, seed=1).rows.tolist() != small.rows.tolist()
    whole = load("digits")
    assert np.array_equal(whole.images[small.rows], small.images)
    assert small.checksum == whole.checksum
    assert len(load("digits", limit=10_000)) == len(whole)


def test_subset():
    digits = load("digits", limit=20)
    part = digits.subset([7, 3])
    assert part.rows.tolist() == digits.rows[[7, 3]].tolist()
    assert np.array_equal(part.images, digits.images[[7, 3]])
    assert part.checksum == digits.checksum


def test_checksum_ignores_order_and_sees_changes():
    texts, labels = ["a", "b", "c"], np.array([0, 1, 0])
    same = checksum(["c", "a", "b"], np.array([0, 0, 1]))
    assert checksum(texts, labels) == same
    assert checksum(texts, np.array([0, 1, 1])) != same
    assert checksum(["a", "b", "d"], labels) != same


# ------------------------------------------------------------------------------------------------ real files

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
        data = load(name, root, split, limit=64)
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
    whole = load(name, root)
    assert np.bincount(whole.labels).tolist() == counts
    if first:
        assert whole.labels[:5].tolist() == first


def test_cifar_pixels_agree_with_the_lossless_part(root):
    """JPEG keeps about 30 dB, so the nearest image of the lossless part is the same one, with its label."""
    of(root, "cifar10-jpeg"), of(root, "cifar10-lossless-6102.npz")
    exact = load("cifar10-lossless", root, "test")
    assert exact.name == "CIFAR-10 (first 6,102)"
    assert len(exact) == 1017
    jpeg = load("cifar10", root, "test", limit=300)
    a = jpeg.images.reshape(len(jpeg), -1).astype(np.float32)
    b = exact.images.reshape(len(exact), -1).astype(np.float32)
    distance = np.sqrt(((a[:, None, :3072:8] - b[None, :, :3072:8]) ** 2).mean(-1))
    match = distance.min(1) < 16
    assert match.sum() >= 10
    assert np.array_equal(jpeg.labels[match], exact.labels[distance.argmin(1)][match])


def test_headlines_are_divided_without_a_leak(root):
    of(root, "headlines")
    train, test = load("headlines", root), load("headlines", root, "test")
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
        turned, straight = load("headlines", tmp_path, split), load("headlines", root, split)
        assert turned.checksum == straight.checksum
        assert turned.texts == straight.texts[::-1]


def test_variable_names_the_root(root, monkeypatch):
    of(root, "mnist")
    monkeypatch.setenv(DATA_VARIABLE, str(root))
    assert load("mnist", split="test", limit=3).source == str(root / "mnist")


# ------------------------------------------------------------------------------------------------ made files


def write_idx(path, array):
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">i4").tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), 1))


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
        data = load("mnist", mnist.parent, "test", limit=2)
    assert data.images.max() == 0


def test_plain_idx_files_are_read(mnist):
    for path in list(mnist.glob("*.gz")):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    with pytest.warns(GeoattnWarning):
        assert len(load("mnist", mnist.parent, "test")) == 10_000


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data[:-200], r"not a complete gzip file"),
        (lambda data: data[:200] + bytes([data[200] ^ 255]) + data[201:], r"not a complete gzip file"),
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
        load("mnist", mnist.parent, "test")
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_wrong_sizes(mnist):
    labels, images = mnist / "t10k-labels-idx1-ubyte.gz", mnist / "t10k-images-idx3-ubyte.gz"
    write_idx(labels, np.zeros(9_999))
    with pytest.raises(GeoattnError, match="10,000 inputs but 9,999 labels"):
        load("mnist", mnist.parent, "test")
    write_idx(labels, np.full(10_000, 10))
    with pytest.raises(GeoattnError, match=r"labels must lie in 0..9; got 10..10"):
        load("mnist", mnist.parent, "test")
    write_idx(images, np.zeros((10_000, 8, 8)))
    with pytest.raises(GeoattnError, match=r"shape \(1, 28, 28\) per image; got \(1, 8, 8\)"):
        load("mnist", mnist.parent, "test")
    write_idx(images, np.zeros((7, 28, 28)))
    write_idx(labels, np.zeros(7))
    with pytest.raises(GeoattnError, match="expected 10,000 rows of MNIST test; got 7"):
        load("mnist", mnist.parent, "test")


def test_missing_file_of_a_folder(mnist):
    with pytest.raises(GeoattnError, match=r"has no file train-images-idx3-ubyte.gz"):
        load("mnist", mnist.parent)


def parquet(path, **columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_parquet_of_texts_in_parts(tmp_path):
    for part, rows in enumerate((500, 372)):
        parquet(
            tmp_path / "sst2" / f"validation-0000{part}-of-00002.parquet",
            sentence=[f" text {part}.{i} " for i in range(rows)],
            label=[i % 2 for i in range(rows)],
            idx=list(range(rows)),
        )
    with pytest.warns(GeoattnWarning):
        data = load("sst2", tmp_path, "test")
    assert data.texts[0] == "text 0.0"
    assert data.texts[-1] == "text 1.371"
    assert data.classes == ("negative", "positive")
    with pytest.raises(GeoattnError, match="holds texts"):
        data.pixels()


def test_bad_parquet(tmp_path):
    path = tmp_path / "imdb" / "test.parquet"
    parquet(path, review=["good"], label=[1])
    with pytest.raises(GeoattnError, match="expected columns text and label; got review, label"):
        load("imdb", tmp_path, "test")
    parquet(path, text=["good", None], label=[1, 0])
    with pytest.raises(GeoattnError, match="some rows have no text or no label"):
        load("imdb", tmp_path, "test")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(GeoattnError, match="not a complete parquet file") as raised:
        load("imdb", tmp_path, "test")
    assert "\n" not in str(raised.value)


def test_bad_json_lines(tmp_path):
    (tmp_path / "headlines").mkdir()
    path = tmp_path / "headlines" / "x.json.gz"
    good = json.dumps({"headline": "a", "is_sarcastic": 1})
    path.write_bytes(gzip.compress(f"{good}\n{{broken\n".encode()))
    with pytest.raises(GeoattnError, match=r"line 2: expected a JSON object with headline and is_sarcastic"):
        load("headlines", tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(GeoattnError, match="not a complete gzip file"):
        load("headlines", tmp_path)


def test_bad_npz(tmp_path):
    path = tmp_path / "cifar10-lossless-6102.npz"
    np.savez(path, other=np.zeros(3))
    with pytest.raises(GeoattnError, match="not a complete npz file"):
        load("cifar10-lossless", tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(GeoattnError, match="not a complete npz file"):
        load("cifar10-lossless", tmp_path)


def png(pixels):
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


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


# ------------------------------------------------------------------------------------------------ hub


def test_neither_folder_nor_hub(no_hub, monkeypatch, tmp_path):
    with pytest.raises(GeoattnError, match=r"no MNIST: GEOATTN_DATA is not set, and from the hub") as raised:
        load("mnist")
    assert "\n" not in str(raised.value)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(GeoattnError, match=r"GEOATTN_DATA=.* has no imdb, .* Set GEOATTN_DATA or root"):
        load("imdb")
    with pytest.raises(GeoattnError, match="is not on the hub"):
        load("cifar10-lossless")


def test_root_is_searched_alone(tmp_path):
    with pytest.raises(GeoattnError, match="has no cifar10 or cifar10-jpeg with CIFAR-10 in it"):
        load("cifar10", tmp_path)
    with pytest.raises(GeoattnError, match=r"no such folder: .*nowhere \(root\)"):
        load("cifar10", tmp_path / "nowhere")


def test_without_datasets(no_hub, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(GeoattnError, match=r"pip install 'geoattn\[hub\]'"):
        load("mnist")


def test_from_the_hub(no_hub, monkeypatch):
    """What the library gives for a repository of the hub, here a made one with the hub's features."""
    datasets = pytest.importorskip("datasets")
    random = np.random.default_rng(0)
    pictures = [png(random.integers(0, 256, (28, 28), dtype=np.uint8)) for _ in range(10)]
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=[str(i) for i in range(10)]))
    rows = {"image": [{"bytes": pictures[i % 10], "path": None} for i in range(10_000)]}
    made = datasets.Dataset.from_dict({**rows, "label": [i % 10 for i in range(10_000)]}, features=features)
    asked = {}

    def load_dataset(repository, configuration, **options):
        asked.update(repository=repository, **options)
        return made

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = load("mnist", split="test", limit=20)
    assert asked["repository"] == "ylecun/mnist"
    assert asked["split"] == "test"
    assert asked["verification_mode"] == "all_checks"
    assert data.source == "hub: ylecun/mnist"
    assert data.images.shape == (20, 1, 28, 28)
    assert data.labels.tolist() == (data.rows % 10).tolist()


def test_only_cached_restores_the_switch(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub.only_cached(True):
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    with hub.only_cached(False):
        assert not constants.HF_HUB_OFFLINE


# ------------------------------------------------------------------------------------------------ arguments


def test_bad_arguments():
    with pytest.raises(GeoattnError, match=r"unknown data set 'minst'; expected one of digits, mnist"):
        load("minst")
    with pytest.raises(GeoattnError, match="limit must be a positive number"):
        load("digits", limit=0)
