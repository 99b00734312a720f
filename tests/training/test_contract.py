"""Every registered attachment, and one that a user wrote, follows the laws of the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.attention import Record
from geoattn.training import Penalty, Recipe, Regulariser, attachment_names, register_attachment
from geoattn.training.attachments import attachment_class
from tests.contracts.attachments import check_attachment

#: One set of settings for each name; a name without one fails the test below.
SETTINGS: dict[str, dict[str, Any]] = {
    "variance": {"direction": "increase", "gamma": 2.0},
    "curvature": {"direction": "decrease", "maps": 4, "edges": 8},
    "entropy": {"direction": "decrease", "gamma": 0.5},
    "lipschitz": {"gamma": 0.5, "heads": 3, "tolerance": 1e-8},
    "temperature": {"temperature": 2.0},
    "dropout": {"rate": 0.3},
    "edge-mask": {"rate": 0.3},
    "monitor": {},
}


class Sharpness(Regulariser):
    """The mean square of the weights, as a user may write it."""

    def penalise(self, record: Record, step: int) -> Penalty:
        value = torch.stack([call.attention().square().mean() for call in record]).mean()
        return Penalty(value, {"sharpness": value})


@pytest.mark.parametrize("name", attachment_names())
def test_registered(name: str) -> None:
    check_attachment(attachment_class(name)(**SETTINGS[name]))


@pytest.mark.parametrize("name", attachment_names())
def test_names_are_those_of_recipes(name: str) -> None:
    (built,) = Recipe("digits", regularisers=((name, SETTINGS[name]),)).build()
    assert type(built) is attachment_class(name)


def test_a_class_of_a_user() -> None:
    check_attachment(Sharpness())


def test_a_name_belongs_to_one_class() -> None:
    with pytest.raises(GeoattnError, match="'variance' belongs to VarianceRegulariser"):
        register_attachment("variance")(Sharpness)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(GeoattnError, match=r"unknown regulariser 'ricci'; expected one of curvature, dropout"):
        Recipe("digits", regularisers=(("ricci", {}),))
