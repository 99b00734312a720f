"""What belongs to a model: its tokenizer, its image processor, and the model inside a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.datasets.vocabulary import check_tokenizer, check_vocabulary, has_tokenizer

__all__ = ["Companions", "companions_of"]


@dataclass(frozen=True, eq=False)
class Companions:
    """A model with the tokenizer and the image processor that were given with it; None when nobody gave one."""

    model: nn.Module
    given_tokenizer: Any = None
    given_processor: Any = None

    @cached_property
    def tokenizer(self) -> Any:
        """The one that was given, or the one in the folder that the model was loaded from; None when there is none."""
        if self.given_tokenizer is not None:
            return self.given_tokenizer
        folder = self._folder()
        if folder is None or not has_tokenizer(folder):
            return None
        from transformers import AutoTokenizer

        tokenizer = _load(AutoTokenizer, folder)
        check_vocabulary(tokenizer, folder)
        return tokenizer

    @cached_property
    def processor(self) -> Any:
        """The one that was given, or the one in the folder that the model was loaded from; None when there is none."""
        if self.given_processor is not None:
            return self.given_processor
        folder = self._folder()
        if folder is None or not (folder / "preprocessor_config.json").is_file():
            return None
        from transformers import AutoImageProcessor

        return _load(AutoImageProcessor, folder)

    @property
    def takes_images(self) -> bool:
        """Whether the configuration speaks of images and not of a vocabulary."""
        config = getattr(self.model, "config", None)
        return hasattr(config, "image_size") and not getattr(config, "vocab_size", None)

    @property
    def takes_texts(self) -> bool:
        """Whether the configuration speaks of a vocabulary and not of images."""
        config = getattr(self.model, "config", None)
        return bool(getattr(config, "vocab_size", None)) and not hasattr(config, "image_size")

    def norms(self) -> tuple[Any, Any]:
        """Mean and standard deviation by which the processor normalises pixels of [0, 1]; (None, None) without one."""
        processor = self.processor
        if processor is None:
            return None, None
        white = 255.0 * float(getattr(processor, "rescale_factor", None) or 1 / 255)
        if getattr(processor, "do_rescale", True) is False:
            white = 255.0
        if not getattr(processor, "do_normalize", False) or processor.image_mean is None:
            return 0.0, 1.0 / white
        return np.asarray(processor.image_mean) / white, np.asarray(processor.image_std) / white

    def _folder(self) -> Path | None:
        name = getattr(getattr(self.model, "config", None), "_name_or_path", "") or ""
        return Path(name) if name and Path(name).is_dir() else None


def companions_of(model: Any, tokenizer: Any = None, processor: Any = None) -> Companions:
    """A model, or the model, tokenizer and image processor of a Hugging Face pipeline; what is given counts."""
    if any(kind.__module__.startswith("transformers.pipelines") for kind in type(model).__mro__):
        tokenizer = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
        processor = getattr(model, "image_processor", None) if processor is None else processor
        model = model.model
    if not isinstance(model, nn.Module):
        raise GeoattnError(
            f"model must be a torch.nn.Module or a pipeline of transformers; got {type(model).__name__}. Load it with"
            " ga.load_model."
        )
    check_tokenizer(tokenizer)
    return Companions(model, tokenizer, processor)


def _load(auto: Any, folder: Path) -> Any:
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()  # which backend draws the pixels is no news
    try:
        return auto.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise GeoattnError(
            f"cannot load what lies beside the model in {folder}: {str(error).splitlines()[0]}"
        ) from None
    finally:
        logging.set_verbosity(level)
