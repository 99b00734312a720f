"""Which tokens are content, and which are CLS, SEP, BOS, registers and the like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError
from geoattn.profiles.batches import Batch

__all__ = ["Special", "read_special"]

_IDS = ("bos", "eos", "cls", "sep", "pad", "mask", "unk", "decoder_start")


@dataclass(frozen=True)
class Special:
    """``ids``: numbers of the special tokens of a text. ``leading``: how many come before the content, after padding.

    None: not known, found out from the sizes of image and patches, or an error.
    """

    wanted: bool
    ids: frozenset[int] | None = None
    leading: int | None = None

    def content(self, batch: Batch, samples: int, n: int, model: nn.Module, name: str) -> Bool[Tensor, "b n"] | None:
        """True where a token is content; None when all tokens are kept."""
        if not self.wanted or samples != batch.size:  # windows hold patches only
            return None
        if batch.ids is not None:
            return self._of_text(batch, batch.ids, n, name)
        leading = self._leading(batch, n, model, name)
        if not leading:
            return None
        return (torch.arange(n) >= leading).expand(samples, n)

    def _of_text(self, batch: Batch, ids: Tensor, n: int, name: str) -> Bool[Tensor, "b n"]:
        if self.ids is None and self.leading is None:
            raise GeoattnError(
                "tokens='content' needs to know the special tokens of this text model: give tokenizer=, or"
                " special=[their numbers]."
            )
        if ids.shape[1] != n:
            raise GeoattnError(
                f"tokens='content': {name} attends over {n} tokens, but the batch has input_ids of length"
                f" {ids.shape[1]}; use tokens='all', or choose layers= that attend over the input."
            )
        if self.ids is None:
            mask = batch.kwargs.get("attention_mask")
            real = torch.ones(ids.shape) if mask is None or mask.shape != ids.shape else mask.cpu() != 0
            return real.cumsum(-1) > (self.leading or 0)
        return ~torch.isin(ids.cpu(), torch.tensor(sorted(self.ids), dtype=ids.dtype))

    def _leading(self, batch: Batch, n: int, model: nn.Module, name: str) -> int:
        leading = self.leading
        if leading is None:
            leading = getattr(model, "num_prefix_tokens", None)  # timm
        if leading is None and batch.images is not None:
            patches = _patches(batch.images, model)
            leading = None if patches is None else n - patches
        if leading is None or not 0 <= leading < n:
            raise GeoattnError(
                f"tokens='content': cannot tell which of the {n} tokens of {name} are special; give special=N, the"
                " number of tokens before the content."
            )
        return leading


def read_special(tokens: Any, special: Any, tokenizer: Any, model: nn.Module) -> Special:
    """What is known of special tokens, from the arguments of `profile`, the tokenizer, or the model's configuration."""
    if tokens not in ("all", "content"):
        raise GeoattnError(f"tokens must be 'all' or 'content'; got {tokens!r}.")
    if tokens == "all":
        return Special(False)
    if isinstance(special, int) and not isinstance(special, bool):
        if special < 0:
            raise GeoattnError(f"special must not be negative; got {special}.")
        return Special(True, leading=special)
    if special is not None:
        ids: list[Any] = list(special) if isinstance(special, Iterable) else [None]
        if not all(isinstance(i, int) for i in ids):
            raise GeoattnError(f"special must be a number of leading tokens or a list of token ids; got {special!r}.")
        return Special(True, ids=frozenset(ids))
    if tokenizer is not None:
        return Special(True, ids=frozenset(tokenizer.all_special_ids))
    config = getattr(model, "config", None)
    found: set[Any] = set()
    for part in _IDS:
        value = getattr(config, f"{part}_token_id", None)
        found |= set(value) if isinstance(value, (list, tuple)) else {value} - {None}
    # A configuration that names only its padding does not know the others.
    names = [part for part in _IDS if part != "pad" and getattr(config, f"{part}_token_id", None) is not None]
    return Special(True, ids=frozenset(found) if names else None)


def _patches(images: Tensor, model: nn.Module) -> int | None:
    """Number of patches, from the patch size in the configuration or the first convolution without overlap."""
    size = getattr(getattr(model, "config", None), "patch_size", None)
    if size is None:
        convolutions = (m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == m.stride)
        first = next(convolutions, None)
        size = None if first is None else first.kernel_size
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return (images.shape[2] // height) * (images.shape[3] // width)
