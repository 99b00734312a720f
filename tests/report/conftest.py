"""Small profiles: of images, of a second model, and of texts that try to break the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.datasets.dataset import Dataset

CONVENTIONS = ["markov", "hop", "grc-0.6", "grc-0.5"]
HOSTILE = (
    "<script>window.owned=1</script>",
    "</script><script>window.owned=2</script>",
    "<img/src=x/onerror=window.owned=3>",
    "\"'><svg/onload=window.owned=4>",
    "<!--",
    "]]>",
    "${window.owned=5}",
    "{{7*7}}",
    "<a/href='javascript:window.owned=6'>b</a>",
    "\u202eright\u202c",
    "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f9d1\u200d\U0001f680\U0001f1ea\U0001f1fa",
    "\u2028\u2029",
    "\x00\x07",
    "$x^2$",
    "x" * 10_000,
)


class Words:
    """A tokenizer that keeps words as they are, whatever is in them."""

    pad_token, model_max_length = "[PAD]", 64
    all_special_ids = (0, 1, 2)

    def __init__(self) -> None:
        self.words = ["[PAD]", "[CLS]", "[SEP]"]

    def __call__(self, texts: list[str], **_: Any) -> dict[str, torch.Tensor]:
        rows = [[1, *map(self._number, text.split(" ") if text else []), 2] for text in texts]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}

    def _number(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.words[i] for i in ids]


def texts(*lines: str) -> Dataset:
    count = len(lines)
    return Dataset(
        name="<b>texts</b>", split="&amp;", source="here", classes=("",), labels=np.zeros(count, dtype=np.int64),
        rows=np.arange(count), checksum="0", texts=lines,
    )  # fmt: skip


@pytest.fixture(scope="session")
def digits() -> Any:
    model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=24)
    return ga.profile(model, data, convention=CONVENTIONS, resamplings=200, examples=2, name="lvit-digits")


@pytest.fixture(scope="session")
def untrained() -> Any:
    model = ga.load_model("lvit-digits", weights="random")
    data = ga.load_data("digits", split="test", limit=24)
    return ga.profile(model, data, convention=CONVENTIONS, resamplings=200, examples=1, name="untrained")


@pytest.fixture(scope="session")
def hostile() -> Any:
    model = ga.load_model("bert-tiny", weights="random", vocab_size=64, num_hidden_layers=3)
    lines = (" ".join(HOSTILE), "", "only two", " ".join(HOSTILE[::-1]))
    return ga.profile(
        model, texts(*lines), tokenizer=Words(), convention=["markov", "hop"], resamplings=50, examples=4,
        name="<script>window.owned=7</script>" + "n" * 10_000,
    )  # fmt: skip
