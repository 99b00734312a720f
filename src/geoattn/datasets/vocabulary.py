"""Whether a tokenizer has the vocabulary of its model: transformers makes one up where the files are missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["TOKENIZER_FILES", "check_tokenizer", "check_vocabulary", "has_tokenizer", "without_vocabulary"]

#: Files of which each shows that a tokenizer was saved in a folder.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "vocab.txt", "tokenizer.model", "vocab.json", "spiece.model",
    "sentencepiece.bpe.model", "spm.model",
)  # fmt: skip
_USUAL = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model")
_WORD_START = {"▁", "Ġ"}  # marks of the start of a word, which are no vocabulary


def has_tokenizer(folder: Path) -> bool:
    """Whether any file of a tokenizer lies there."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def check_vocabulary(tokenizer: Any, place: str | os.PathLike[str]) -> None:
    """An error for a tokenizer that knows special tokens and nothing else; tokenizers of bytes need no file.

    Without its files transformers makes such a tokenizer up, and every word of a text becomes the unknown token.
    """
    files = dict(getattr(tokenizer, "vocab_files_names", None) or {})
    if not files or not hasattr(tokenizer, "get_vocab"):
        return
    words = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens) - _WORD_START
    if not words:
        raise without_vocabulary(place, files.values())


def without_vocabulary(place: str | os.PathLike[str], files: Any = _USUAL) -> GeoattnError:
    """The error for a place where a vocabulary was expected, in one of these files."""
    wanted = " or ".join(dict.fromkeys(("tokenizer.json", *map(str, files))))
    return GeoattnError(
        f"{place} has no vocabulary for texts: expected the files of a tokenizer ({wanted}), and found none with words"
        " in it, so that every text would be unknown tokens. Copy the files of the model's tokenizer there, for"
        " example with tokenizer.save_pretrained, or give a tokenizer of your own with tokenizer=."
    )


def check_tokenizer(given: Any) -> None:
    """An error for what is no tokenizer, such as the name of one."""
    if given is None or callable(given):
        return
    if isinstance(given, (str, os.PathLike)):
        raise GeoattnError(
            f"tokenizer must be a tokenizer, not its name; got {str(given)!r}: give ga.load_tokenizer({str(given)!r})."
        )
    raise GeoattnError(
        f"tokenizer must be a tokenizer of transformers, as ga.load_tokenizer(name) gives; got {type(given).__name__}."
    )
