"""A data set as tensors that a model takes: pixels, or tokens with their mask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.datasets.dataset import Dataset

__all__ = ["Inputs", "image_inputs", "make_tokenizer", "text_inputs"]

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """All rows of a split; ``forward`` runs a model on some of them."""

    tensors: dict[str, Tensor]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def forward(self, model: Any, rows: Tensor, device: Any, batch: Tensor | None = None) -> Tensor:
        """Logits of the classes. Texts are cut to the longest of the batch: the rest is padding.

        ``batch``: the rows of the whole batch, when ``rows`` are those that this process has of it.
        """
        chosen = {name: t[rows].to(device) for name, t in self.tensors.items()}
        if "pixels" in chosen:
            return model(chosen["pixels"])
        length = int(self.tensors["attention_mask"][rows if batch is None else batch].sum(1).max())
        return model(**{name: t[:, :length] for name, t in chosen.items()}).logits


def image_inputs(data: Dataset) -> Inputs:
    """Pixels in [0, 1]."""
    return Inputs({"pixels": data.pixels()}, data.targets())


def text_inputs(data: Dataset, tokenizer: Any, length: int) -> Inputs:
    """Token numbers and attention mask, cut to ``length`` tokens."""
    if data.texts is None:
        raise GeoattnError(f"{data.name} holds images, not texts.")
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding()
    coded = tokenizer.encode_batch(list(data.texts))
    return Inputs(
        {
            "input_ids": torch.tensor([c.ids for c in coded]),
            "attention_mask": torch.tensor([c.attention_mask for c in coded]),
        },
        data.targets(),
    )


def make_tokenizer(texts: Any, size: int = 8192) -> Any:
    """A lower-case WordPiece tokenizer in the manner of BERT, made from the training texts alone.

    Its vocabulary is every character, alone and inside of a word, and the most frequent words, up to ``size`` in all;
    other words are spelt. Needs no download. (The trainers of the tokenizers library break ties by chance, so two runs
    would differ.)

    >>> from geoattn.training import make_tokenizer
    >>> make_tokenizer(["A film to see, and to see again."] * 4, size=100).encode("a film, unseen").tokens
    ['[CLS]', 'a', 'film', ',', '[UNK]', '[SEP]']
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    normaliser, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in splitter.pre_tokenize_str(normaliser.normalize_str(text)))
    characters = sorted({character for word in counts for character in word})
    words = sorted(counts, key=lambda word: (-counts[word], word))
    names = [*_SPECIAL, *characters, *(f"##{c}" for c in characters), *words]
    names = list(dict.fromkeys(names))[: max(size, len(_SPECIAL) + 2 * len(characters))]
    vocabulary = {name: i for i, name in enumerate(names)}
    tokenizer: Any = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normaliser, splitter, decoders.WordPiece()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer
