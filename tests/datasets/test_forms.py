"""Own data: every form through every door gives the numbers of the plainest form; the rest is refused with ways out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification, pipeline
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import geoattn as ga
from geoattn.perturbations import Flip, WordSwap

TEXTS = ["the film is good", "NA", "a bad film , it is not good", "good film"]
LABELS = [1, 0, 0, 1]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "is", "good", "na", "a", "bad", ",", "it", "not"]


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier of texts with its tokenizer beside it."""
    folder = tmp_path_factory.mktemp("text-model")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        initializer_range=0.5, num_labels=2,
    )  # fmt: skip
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    ga.load_tokenizer(folder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier of images with its image processor beside it."""
    folder = tmp_path_factory.mktemp("image-model")
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        initializer_range=0.5, num_labels=2,
    )  # fmt: skip
    ViTForImageClassification(config).eval().save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 16, "width": 16}, image_mean=[0.4, 0.5, 0.6]).save_pretrained(folder)
    return folder


def pictures() -> list[Image.Image]:
    """Of different sizes and modes."""
    rng = np.random.default_rng(0)
    colour = [
        Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for h, w in ((20, 30), (16, 16), (9, 40))
    ]
    return [*colour, Image.fromarray(rng.integers(0, 256, (24, 24), dtype=np.uint8))]


def rows() -> dict[str, list[Any]]:
    return {"text": TEXTS, "label": LABELS}


def write(folder: Path, name: str) -> Path:
    path = folder / name
    if path.suffix == ".txt":
        path.write_text("\n".join(TEXTS) + "\n")
    elif path.suffix == ".csv":
        pd.DataFrame(rows()).to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps({"text": t, "label": k}) for t, k in zip(TEXTS, LABELS, strict=True)))
    else:
        pd.DataFrame(rows()).to_parquet(path)
    return path


def hub(**columns: Any) -> Any:
    import datasets

    return datasets.Dataset.from_dict(columns)


#: Each gives (data, more arguments) from a folder to write in and a tokenizer.
TEXT_FORMS: dict[str, Callable[[Path, Any], tuple[Any, dict[str, Any]]]] = {
    "list": lambda _f, _t: (TEXTS, {}),
    "tuple": lambda _f, _t: (tuple(TEXTS), {}),
    "array": lambda _f, _t: (np.array(TEXTS), {}),
    "series": lambda _f, _t: (pd.Series(TEXTS), {}),
    "encoding of tensors": lambda _f, t: (t(TEXTS, return_tensors="pt", padding=True), {}),
    "encoding of lists": lambda _f, t: (t(TEXTS), {}),
    "encoding of arrays": lambda _f, t: (t(TEXTS, return_tensors="np", padding=True), {}),
    "dict of tensors": lambda _f, t: (dict(t(TEXTS, return_tensors="pt", padding=True)), {}),
    "datasets": lambda _f, _t: (hub(**rows()), {}),
    "datasets, column named": lambda _f, _t: (hub(a=TEXTS, b=["x"] * 4), {"column": "a"}),
    "datasets, one column": lambda _f, _t: (hub(**rows())["text"], {}),
    "datasets of tokens": lambda _f, t: (hub(**dict(t(TEXTS))), {}),
    "frame": lambda _f, _t: (pd.DataFrame(rows()), {}),
    "frame, column named": lambda _f, _t: (pd.DataFrame({"a": TEXTS, "b": ["x"] * 4}), {"column": "a"}),
    "rows": lambda _f, _t: ([{"text": t} for t in TEXTS], {}),
    "loader of texts": lambda _f, _t: (DataLoader(TEXTS, batch_size=3), {}),
    "loader of pairs": lambda _f, _t: (DataLoader(list(zip(TEXTS, LABELS, strict=True)), batch_size=2), {}),
    "loader of datasets": lambda _f, _t: (DataLoader(hub(**rows()), batch_size=2), {}),
    "loader of encodings": lambda _f, t: (
        DataLoader(TEXTS, batch_size=2, collate_fn=lambda some: t(some, return_tensors="pt", padding=True)), {}
    ),
    "generator": lambda _f, _t: ((TEXTS[k : k + 2] for k in (0, 2)), {}),
    "txt": lambda f, _t: (write(f, "a.txt"), {}),
    "csv": lambda f, _t: (str(write(f, "a.csv")), {}),
    "jsonl": lambda f, _t: (write(f, "a.jsonl"), {}),
    "parquet": lambda f, _t: (write(f, "a.parquet"), {"column": "text"}),
}  # fmt: skip
IMAGE_FORMS: dict[str, Callable[[Path], tuple[Any, dict[str, Any]]]] = {
    "pillow": lambda _f: (pictures(), {}),
    "arrays": lambda _f: ([np.asarray(p) for p in pictures()], {}),
    "real arrays": lambda _f: ([np.asarray(p) / 255 for p in pictures()], {}),
    "folder": lambda f: (saved(f), {}),
    "paths": lambda f: (sorted(saved(f).iterdir()), {}),
    "subfolders": lambda f: (str(saved(f / "a").parent), {}),
    "frame": lambda _f: (pd.DataFrame({"image": pictures(), "label": LABELS}), {}),
    "datasets": lambda _f: (hub(image=pictures()), {}),
    "loader": lambda _f: (DataLoader(pictures(), batch_size=2, collate_fn=list), {}),
    "loader of pairs": lambda _f: (
        DataLoader(list(zip(pictures(), LABELS, strict=True)), batch_size=2, collate_fn=transposed), {}
    ),
}  # fmt: skip


def transposed(pairs: list[Any]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*pairs, strict=True)))


def saved(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for k, picture in enumerate(pictures()):
        picture.save(folder / f"{k}.png")
    return folder


def numbers(profile: Any) -> np.ndarray:
    return profile.table.value.to_numpy()


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_form_of_text_gives_the_same_profile(form: str, text_folder: Path, tmp_path: Path) -> None:
    model, tokenizer = ga.load_model(text_folder), ga.load_tokenizer(text_folder)
    data, more = TEXT_FORMS[form](tmp_path, tokenizer)
    found = ga.profile(model, data, resamplings=2, **more)
    expected = ga.profile(model, TEXTS, resamplings=2)
    assert found.settings["samples"] == 4
    np.testing.assert_allclose(numbers(found), numbers(expected), atol=1e-5)
    assert found.examples[0].tokens[1] == "the"


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_form_of_text_gives_the_same_features(form: str, text_folder: Path, tmp_path: Path) -> None:
    model, tokenizer = ga.load_model(text_folder), ga.load_tokenizer(text_folder)
    data, more = TEXT_FORMS[form](tmp_path, tokenizer)
    pd.testing.assert_frame_equal(ga.features(model, data, **more), ga.features(model, TEXTS), atol=1e-4)


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_form_of_text_can_be_perturbed(form: str, text_folder: Path, tmp_path: Path) -> None:
    model, tokenizer = ga.load_model(text_folder), ga.load_tokenizer(text_folder)
    data, more = TEXT_FORMS[form](tmp_path, tokenizer)
    found = ga.robustness(model, data, [WordSwap(1.0)], **more)
    expected = ga.robustness(model, TEXTS, [WordSwap(1.0)])
    assert np.array_equal(found.predicted, expected.predicted)
    assert found.settings["labels"] in ("given", "clean predictions")
    if found.settings["labels"] == "given":
        assert found.labels.tolist() == LABELS
    else:
        assert found["word swap 1"].clean == 1.0


@pytest.mark.parametrize("form", ["list", "array", "frame", "datasets, column named", "txt", "csv", "jsonl"])
def test_labels_can_be_given(form: str, text_folder: Path, tmp_path: Path) -> None:
    data, more = TEXT_FORMS[form](tmp_path, None)
    found = ga.robustness(ga.load_model(text_folder), data, [WordSwap(1.0)], labels=[0, 1, 1, 0], **more)
    assert found.labels.tolist() == [0, 1, 1, 0]
    assert found.settings["labels"] == "given"


@pytest.mark.parametrize("form", IMAGE_FORMS)
def test_every_form_of_images_through_every_door(form: str, image_folder: Path, tmp_path: Path) -> None:
    model = ga.load_model(image_folder)
    data, more = IMAGE_FORMS[form](tmp_path / "photos")
    for door in (
        lambda given, more: numbers(ga.profile(model, given, resamplings=2, **more)),
        lambda given, more: ga.features(model, given, **more).to_numpy(),
        lambda given, more: ga.robustness(model, given, [Flip(1.0)], **more).predicted,
    ):
        np.testing.assert_allclose(door(data, more), door(pictures(), {}), atol=1e-5)


def test_images_are_prepared_by_the_model_s_own_processor(image_folder: Path) -> None:
    from geoattn.datasets.companions import companions_of
    from geoattn.datasets.own_data import OwnBatches

    own = companions_of(ga.load_model(image_folder))
    batch = next(iter(OwnBatches(pictures(), own)))
    expected = own.processor([p.convert("RGB") for p in pictures()], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(batch["pixel_values"], expected, atol=1e-5, rtol=0)


def test_a_small_vision_model_of_geoattn_takes_pictures() -> None:
    data = ga.load_data("digits", split="test", limit=3)
    model = ga.load_model("lvit-digits")
    arrays = [np.round(image[0] / 16 * 255).astype(np.uint8) for image in data.images]
    near = ga.profile(model, arrays, resamplings=2)
    assert near.value("distance_to_one")[0] == pytest.approx(
        ga.profile(model, data).value("distance_to_one")[0], abs=5e-3
    )
    large = [np.kron(image, np.ones((5, 5), np.uint8)) for image in arrays]
    assert ga.profile(model, large, resamplings=2).settings["samples"] == 3


@pytest.mark.parametrize("kind", ["text-classification", "image-classification"])
def test_a_pipeline_is_a_model(kind: str, text_folder: Path, image_folder: Path) -> None:
    text = kind.startswith("text")
    model = ga.load_model(text_folder if text else image_folder)
    if text:
        made = pipeline(kind, model=model, tokenizer=ga.load_tokenizer(text_folder))
    else:
        made = pipeline(kind, model=model, image_processor=ViTImageProcessorPil.from_pretrained(image_folder))
    model.config._name_or_path = ""  # nothing beside the model: what the pipeline has is used
    data, change = (TEXTS, WordSwap(1.0)) if text else (pictures(), Flip(1.0))
    expected = ga.profile(ga.load_model(text_folder if text else image_folder), data, resamplings=2)
    np.testing.assert_allclose(numbers(ga.profile(made, data, resamplings=2)), numbers(expected), atol=1e-6)
    assert len(ga.features(made, data)) == 4
    assert ga.robustness(made, data, [change]).predicted.shape == (1, 4)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.parquet"])
def test_the_command_line_takes_files(name: str, text_folder: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from geoattn.cli.app import app

    path = write(tmp_path, name)
    out = tmp_path / "r.html"
    options = ["--data", str(path), "--conventions", "markov", "--json", "--out", str(out)]
    result = CliRunner().invoke(
        app, ["report", str(text_folder), *options, *([] if name == "a.txt" else ["--column", "text"])]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["models"][0]
    expected = ga.profile(ga.load_model(text_folder), TEXTS, edges="auto").value("distance_to_one")[0]
    assert found["samples"] == 4
    assert found["conventions"]["markov"]["distance_to_one"]["value"] == pytest.approx(expected, abs=1e-6)


def test_the_command_line_takes_a_folder_of_images(image_folder: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from geoattn.cli.app import app

    data = saved(tmp_path / "photos")
    options = ["--data", str(data), "--conventions", "markov", "--json", "--out", str(tmp_path / "r.html")]
    result = CliRunner().invoke(app, ["report", str(image_folder), *options])
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout)["models"][0]["conventions"]["markov"]["distance_to_one"]["value"]
    expected = ga.profile(ga.load_model(image_folder), pictures(), edges="auto").value("distance_to_one")[0]
    assert value == pytest.approx(expected, abs=1e-6)
