"""Texts that are cut: at how many tokens, by one rule through every door, and never without a word."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel, GPT2Config, RobertaConfig, RobertaModel, XLNetConfig

import geoattn as ga
from geoattn.datasets.token_limit import positions_of, token_limit
from geoattn.perturbations import WordSwap
from tests.datasets.test_forms import WORDS

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
LONG, SHORT = "good film " * 400, "the film is good"


class Configured:
    def __init__(self, config: Any) -> None:
        self.config = config


def saved(folder: Path, positions: int) -> Path:
    BertModel(BertConfig(**SMALL, vocab_size=len(WORDS), max_position_embeddings=positions)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return folder


DOORS: dict[str, Callable[[Any, Any], int]] = {
    "profile": lambda model, texts: len(ga.profile(model, texts, edges=4, examples=1).examples[0].tokens),
    "features": lambda model, texts: int(ga.features(model, texts, edges=4)["tokens"][0]),
    "smoothness": lambda model, texts: int(ga.model_smoothness(model, texts).table["n"].max()),
    "scikit-learn": lambda model, texts: int(ga.AttentionGeometry(model, edges=4).fit(texts).transform(texts)[0, -1]),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("positions", "cut_at", "words"), [(20, 20, "no more positions"), (600, 512, "positions for 600")]
)
def test_every_door_cuts_at_the_same_length_and_says_so(
    door: str, positions: int, cut_at: int, words: str, tmp_path: Path
) -> None:
    model = ga.load_model(saved(tmp_path, positions))
    with pytest.warns(ga.GeoattnWarning, match=f"1 of 2 texts was cut at {cut_at} tokens: .*{words}"):
        assert DOORS[door](model, [LONG, SHORT]) == cut_at


def test_a_profile_warns_once_and_notes_it(tmp_path: Path) -> None:
    model = ga.load_model(saved(tmp_path, 20))
    for texts in ([LONG, SHORT, LONG], [[LONG], [SHORT, LONG]]):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            profile = ga.profile(model, texts)
        assert [str(one.message)[:36] for one in told] == ["2 of 3 texts were cut at 20 tokens: "]
        assert profile.settings["notes"][0] == "2 of 3 texts were cut at 20 tokens"
    assert not any("cut" in note for note in ga.profile(model, [SHORT]).settings["notes"])


def test_a_table_of_robustness_warns_and_notes_it(tmp_path: Path) -> None:
    saved(tmp_path, 20)
    model, swap = ga.load_model(tmp_path, classes=2), [WordSwap(0.4)]
    with pytest.warns(ga.GeoattnWarning, match="1 of 2 texts was cut at 20 tokens"):
        found = ga.robustness(model, [LONG, SHORT], swap)
    assert found.settings["notes"] == ["1 of 2 texts was cut at 20 tokens"]
    assert ga.robustness(model, [SHORT, SHORT], swap).settings["notes"] == []


def test_batches_of_the_own_tokenizer_may_be_longer(tmp_path: Path) -> None:
    model, tokenizer = ga.load_model(saved(tmp_path, 600)), ga.load_tokenizer(tmp_path)
    batches = [tokenizer("good film " * 270, return_tensors="pt")]
    assert ga.features(model, batches, edges=4)["tokens"].tolist() == [542]


def test_a_text_of_just_the_limit_is_whole(tmp_path: Path) -> None:
    model = ga.load_model(saved(tmp_path, 20))
    assert ga.features(model, ["good film " * 9], edges=4)["tokens"].tolist() == [20]  # with [CLS] and [SEP]


def test_positions_are_those_of_the_configuration() -> None:
    roberta = RobertaConfig(**SMALL, vocab_size=20, max_position_embeddings=30, pad_token_id=1)
    assert positions_of(RobertaModel(roberta)) == 28
    assert positions_of(Configured(GPT2Config(n_positions=64))) == 64
    assert positions_of(Configured(XLNetConfig())) is None
    assert positions_of(object()) is None
    tokenizer = type("Tokenizer", (), {"model_max_length": 48})()
    assert token_limit(tokenizer, Configured(GPT2Config(n_positions=64))) == 48
    assert token_limit(object(), object()) == 512
