"""What tests of data sets share."""

import pytest

from geoattn.datasets.loader import DATA_VARIABLE


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
