"""At how many tokens texts are cut, and how many texts that concerns: one rule for all that takes texts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from geoattn._core.errors import GeoattnWarning

__all__ = ["LONGEST", "Cuts", "positions_of", "token_limit"]

#: Tokens of a text, unless the model or its tokenizer take fewer: the cost grows with the square of the length.
LONGEST = 512
_TOGETHER = 256  # texts that are counted at a time


def token_limit(tokenizer: Any, model: Any) -> int:
    """512, or the limit of the tokenizer, or the number of positions of the model, whichever is the smallest."""
    own = int(getattr(tokenizer, "model_max_length", None) or LONGEST)
    return min(LONGEST, own, positions_of(model) or LONGEST)


def positions_of(model: Any) -> int | None:
    """How many tokens a model has positions for, by its configuration; None when it does not say.

    Models of the family of RoBERTa number their positions from the padding on, and have as many fewer.
    """
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    count = getattr(config, "max_position_embeddings", None)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        return None
    tables = model.named_modules() if isinstance(model, nn.Module) else ()
    before = [
        table.padding_idx + 1
        for name, table in tables
        if isinstance(table, nn.Embedding) and table.padding_idx is not None and "position" in name.split(".")[-1]
    ]
    return count - max(before, default=0)


@dataclass
class Cuts:
    """How many texts of how many are cut for a model; ``say`` warns of them.

    Examples
    --------
    >>> from transformers import BertConfig, BertModel
    >>> model = BertModel(BertConfig(num_hidden_layers=1, max_position_embeddings=4, vocab_size=9))
    >>> tokenizer = lambda texts, max_length, **_: {"input_ids": [text.split()[:max_length] for text in texts]}
    >>> cuts = Cuts(tokenizer, model)
    >>> cuts.count(["a b c", "a b c d e"])
    >>> cuts.notes()
    ['1 of 2 texts was cut at 4 tokens']
    """

    tokenizer: Any
    model: Any
    cut: int = 0
    texts: int = 0

    @property
    def limit(self) -> int:
        """Tokens that remain of a text that is cut."""
        return token_limit(self.tokenizer, self.model)

    def count(self, texts: Sequence[str]) -> None:
        """Add texts: those of which one token more would remain if the limit were higher by one are cut."""
        if self.tokenizer is None:
            return  # `feed` says what is missing
        limit = self.limit
        for first in range(0, len(texts), _TOGETHER):
            some = list(texts[first : first + _TOGETHER])
            longer = self.tokenizer(some, truncation=True, max_length=limit + 1)["input_ids"]
            self.cut += sum(len(tokens) > limit for tokens in longer)
        self.texts += len(texts)

    def notes(self) -> list[str]:
        """What was cut, in words; empty when nothing was."""
        if not self.cut:
            return []
        were = "was" if self.cut == 1 else "were"
        return [f"{self.cut:,} of {self.texts:,} texts {were} cut at {self.limit} tokens"]

    def say(self) -> None:
        """Warn, if any text was cut."""
        if not self.cut:
            return
        most = positions_of(self.model)
        if most is not None and most <= self.limit:
            why = "the model has no more positions. Give shorter texts, or parts of texts."
        else:
            rule = "the cost grows with the square of the length" if self.limit == LONGEST else "its tokenizer says so"
            most = f" (the model has positions for {most:,})" if most else ""
            why = (
                f"{rule}. Batches of your own tokenizer may be longer{most}:"
                " [tokenizer(text, return_tensors='pt') for text in texts]."
            )
        warnings.warn(f"{self.notes()[0]}: {why}", GeoattnWarning, stacklevel=3)
