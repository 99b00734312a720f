"""How pixels are normalised: by what is given, by the model's files, by its kind."""

import json

import pytest
import torch

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.datasets.feed import feed
from geoattn.datasets.pixel_norm import pixel_norm

TINY = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 32}


def flat(value):
    return [round(float(v), 4) for v in torch.as_tensor(value).flatten()]


@pytest.mark.parametrize(("name", "mean"), [("deit-b16", [0.485, 0.456, 0.406]), ("vit-b16", [0.5, 0.5, 0.5])])
def test_by_kind(name, mean):
    model = ga.load_model(name, weights="random", **TINY)
    assert flat(pixel_norm(model)[0]) == mean
    rows = ga.load_data("digits", split="test", limit=2)
    batch, half = (next(iter(feed(rows, model, **given)))["pixel_values"] for given in ({}, {"mean": 0.5, "std": 0.5}))
    back = batch * torch.as_tensor(pixel_norm(model)[1]) + torch.as_tensor(pixel_norm(model)[0])
    torch.testing.assert_close(back, half * 0.5 + 0.5)


def test_a_folder_says_it_itself(tmp_path):
    model = ga.load_model("vit-b16", weights="random", classes=2, **TINY)
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]})
    )
    assert flat(pixel_norm(ga.load_model(tmp_path))[0]) == [0.1, 0.2, 0.3]
    (tmp_path / "preprocessor_config.json").write_text("not json")
    assert flat(pixel_norm(ga.load_model(tmp_path))[0]) == [0.5, 0.5, 0.5]


def test_configuration_and_arguments_come_first():
    model = ga.load_model("deit-b16", weights="random", **TINY)
    model.config.image_mean, model.config.image_std = [0.3] * 3, [0.4] * 3
    assert flat(pixel_norm(model)[1]) == [0.4, 0.4, 0.4]
    assert pixel_norm(model, mean=0.1, std=[0.2])[0] == 0.1
    assert pixel_norm(torch.nn.Identity()) == (0.5, 0.5)
    with pytest.raises(GeoattnError, match="one for each of 3 channels; got 2"):
        pixel_norm(model, mean=[0.1, 0.2])
