"""Pretrained models that studies measure or fine-tune, and where they are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from geoattn._core.errors import GeoattnError

__all__ = ["PRETRAINED", "pretrained_folder"]

#: Models by the name of their folder, and what a reader must know about them.
PRETRAINED = {
    "dinov2-small": "DINOv2 ViT-S/14 at 224 pixels",
    "minilm": "all-MiniLM-L6-v2",
    "bert-tiny-questions": "BERT-Tiny, fine-tuned to tell questions from statements; no licence stated",
    "smollm2-135m": "SmolLM2-135M-Instruct, dequantised from 4 bits",
    "stories15m": "Llama of 6 layers trained on stories",
    "stories260K": "Llama of 5 layers trained on stories",
}


def pretrained_folder(name: str) -> Path:
    """The folder of a model of `PRETRAINED`, in the folder that ``GEOATTN_MODELS`` or ``GEOATTN_DATA`` names."""
    if name not in PRETRAINED:
        raise GeoattnError(f"unknown model {name!r}; expected one of {', '.join(PRETRAINED)}.")
    roots = [os.environ[v] for v in ("GEOATTN_MODELS", "GEOATTN_DATA") if os.environ.get(v)]
    for root in roots:
        if Path(root, name).is_dir():
            return Path(root, name)
    raise GeoattnError(
        f"this study needs the model {name} ({PRETRAINED[name]}), which is not here: set GEOATTN_MODELS to a folder"
        f" that holds {name}/ with its weights."
    )
