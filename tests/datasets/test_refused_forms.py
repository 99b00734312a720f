"""Own data that cannot be used: what came, and the three nearest ways that work, through every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import geoattn as ga
from geoattn.datasets.forms.registry import FORMS, nearest_ways
from geoattn.perturbations import Flip, WordSwap
from tests.datasets.test_forms import LABELS, TEXTS, hub, image_folder, pictures, text_folder

__all__ = ["image_folder", "text_folder"]  # fixtures

DOORS: dict[str, Callable[[Any, Any], Any]] = {
    "profile": ga.profile,
    "features": ga.features,
    "robustness": lambda model, data: ga.robustness(model, data, [WordSwap(1.0)]),
}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "number": (lambda: 3, "cannot use int as data"),
    "nothing": (lambda: None, "cannot use NoneType as data"),
    "one text": (lambda: "the film is good", "cannot use the text 'the film is good' as data"),
    "a model": (lambda: torch.nn.Linear(1, 1), "cannot use torch.Linear as data"),
    "torch dataset": (lambda: TensorDataset(torch.ones(2, 3)), "cannot use torch.TensorDataset as data"),
    "splits": (lambda: __import__("datasets").DatasetDict(train=hub(text=TEXTS)), "DatasetDict with the keys train"),
    "empty dict": (dict, "cannot use dict with the keys none"),
    "bytes": (lambda: b"abc", "cannot use bytes"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_used_is_refused_with_three_ways(door: str, what: str, text_folder: Path) -> None:
    make, words = REFUSED[what]
    with pytest.raises(ga.GeoattnError) as error:
        DOORS[door](ga.load_model(text_folder), make())
    text = str(error.value)
    assert words in text
    assert sum(form.name in text for form in FORMS) >= 3
    assert "\n" not in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("given", "first"),
    [("photos", "file"), (torch.nn.Linear(1, 1), ""), (np.zeros((2, 8, 8, 5)), "list of images"), (3, "tensors")],
)
def test_the_nearest_ways_are_near(given: Any, first: str) -> None:
    assert first in nearest_ways(given)[0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pd.DataFrame({"a": TEXTS, "b": TEXTS}), r"which column holds the texts or images\? several \(a, b\)"),
        (pd.DataFrame({"n": [1.0, 2.0]}), "which column .* none of n"),
        (pd.DataFrame({"text": ["good", None]}), "column 'text', row 1: no value"),
        (pd.DataFrame({"text": []}), "holds no sample"),
        ([["good film"], [3]], "batch 1: cannot use"),
        ([(["good"], ["film"])], "batch 0 holds 2 lists of texts"),
        (["good", 3], "row 1: expected a text; got int"),
        (Path("nowhere.csv"), r"cannot read nowhere\.csv: no such file"),
        (Path("nowhere.xlsx"), r"a file that ends in \.txt, \.csv"),
    ],
)
@pytest.mark.parametrize("door", DOORS)
def test_mistakes_are_named(door: str, data: Any, words: str, text_folder: Path) -> None:
    with pytest.raises(ga.GeoattnError, match=words):
        DOORS[door](ga.load_model(text_folder), data)


def test_the_wrong_medium_and_a_missing_tokenizer_are_named(text_folder: Path, image_folder: Path) -> None:
    with pytest.raises(ga.GeoattnError, match="holds texts, but the model takes images"):
        ga.profile(ga.load_model(image_folder), TEXTS)
    with pytest.raises(ga.GeoattnError, match="holds images, but the model takes texts"):
        ga.profile(ga.load_model(text_folder), pictures())
    bare = ga.load_model(text_folder)
    bare.config._name_or_path = ""
    with pytest.raises(ga.GeoattnError, match="no tokenizer lies beside the model: give tokenizer="):
        ga.profile(bare, TEXTS)
    with pytest.raises(ga.GeoattnError, match="tensors as the model takes them"):
        ga.robustness(ga.load_model(image_folder), [torch.zeros(1, 3, 16, 16)], [Flip(1.0)])


def test_a_tokenizer_that_transformers_made_up_is_refused(text_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    ga.load_model(text_folder).save_pretrained(folder)  # pyright: ignore[reportCallIssue]
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(ga.GeoattnError, match=r"model has no vocabulary for texts: expected .*vocab\.txt"):
        ga.profile(ga.load_model(folder), TEXTS)


@pytest.mark.parametrize("door", ["profile", "features"])
def test_the_name_of_a_tokenizer_is_no_tokenizer(door: str, text_folder: Path) -> None:
    with pytest.raises(ga.GeoattnError, match=r"not its name; got '.*': give ga\.load_tokenizer\('"):
        getattr(ga, door)(ga.load_model(text_folder), TEXTS, tokenizer=str(text_folder))
    with pytest.raises(ga.GeoattnError, match=r"tokenizer must be a tokenizer of transformers.*; got int"):
        getattr(ga, door)(ga.load_model(text_folder), TEXTS, tokenizer=3)


def test_names_of_classes_must_be_those_of_the_model(text_folder: Path) -> None:
    model = ga.load_model(text_folder)
    names = ["good", "bad", "bad", "good"]
    model.config.label2id = {"bad": 0, "good": 1}
    assert ga.robustness(model, TEXTS, [WordSwap(1.0)], labels=names).labels.tolist() == LABELS
    with pytest.raises(ga.GeoattnError, match="has the labels no, yes, the model the classes bad, good"):
        ga.robustness(model, TEXTS, [WordSwap(1.0)], labels=["yes", "no", "no", "yes"])
    with pytest.raises(ga.GeoattnError, match="one for each of the 4 samples; got 2"):
        ga.robustness(model, TEXTS, [WordSwap(1.0)], labels=[0, 1])
