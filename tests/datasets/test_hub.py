"""Data sets from the hub, and what is said when it cannot be reached."""

import numpy as np
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.datasets import hub
from geoattn.datasets.loader import DATA_VARIABLE, load_data
from tests.datasets.made_files import png


def test_neither_folder_nor_hub(no_hub, monkeypatch, tmp_path):
    with pytest.raises(GeoattnError, match=r"no MNIST: GEOATTN_DATA is not set, and from the hub") as raised:
        load_data("mnist")
    assert "\n" not in str(raised.value)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(GeoattnError, match=r"GEOATTN_DATA=.* has no imdb, .* Set GEOATTN_DATA or root"):
        load_data("imdb")
    with pytest.raises(GeoattnError, match="is not on the hub"):
        load_data("cifar10-lossless")


def test_root_is_searched_alone(tmp_path):
    with pytest.raises(GeoattnError, match="has no cifar10 or cifar10-jpeg with CIFAR-10 in it"):
        load_data("cifar10", tmp_path)
    with pytest.raises(GeoattnError, match=r"no such folder: .*nowhere \(root\)"):
        load_data("cifar10", tmp_path / "nowhere")


def test_without_datasets(no_hub, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(GeoattnError, match=r"pip install 'geoattn\[hub\]'"):
        load_data("mnist")


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
    data = load_data("mnist", split="test", limit=20)
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
