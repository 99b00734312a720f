"""`load_data`: the embedded set, limits, checksums, arguments."""

import numpy as np
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.datasets.formats import checksum
from geoattn.datasets.loader import load_data


def test_digits_needs_nothing(no_hub):
    train, test = load_data("digits"), load_data("digits", split="test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.images.shape[1:] == (1, 8, 8)
    assert set(test.labels) == set(range(10))
    pixels = train.pixels()
    assert (float(pixels.min()), float(pixels.max())) == (0.0, 1.0)
    assert train.targets().tolist() == train.labels.tolist()
    assert train.checksum != test.checksum


def test_result_cannot_be_changed():
    digits = load_data("digits", limit=5)
    for array in (digits.images, digits.labels, digits.rows):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        digits.name = "other"


def test_limit_is_random_nested_and_seeded():
    small, large = load_data("digits", limit=10), load_data("digits", limit=50)
    assert small.rows.tolist() == large.rows[:10].tolist()
    assert small.rows.tolist() != list(range(10))
    assert load_data("digits", limit=10, seed=1).rows.tolist() != small.rows.tolist()
    whole = load_data("digits")
    assert np.array_equal(whole.images[small.rows], small.images)
    assert small.checksum == whole.checksum
    assert len(load_data("digits", limit=10_000)) == len(whole)


def test_subset():
    digits = load_data("digits", limit=20)
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


def test_bad_arguments():
    with pytest.raises(GeoattnError, match=r"unknown data set 'minst'; expected one of digits, mnist"):
        load_data("minst")
    with pytest.raises(GeoattnError, match="limit must be a positive number"):
        load_data("digits", limit=0)
