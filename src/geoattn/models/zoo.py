"""The models of the papers by name: sizes, and where their weights are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from geoattn._core.errors import GeoattnError

__all__ = ["ZOO", "Entry", "entry_of"]


@dataclass(frozen=True)
class Entry:
    """One model of the zoo.

    Attributes
    ----------
    kind
        ``lvit``: the module of our own; ``image`` and ``text``: classes of transformers.
    architecture
        Name of the configuration class of transformers, without ``Config``.
    config
        What differs from the defaults of the configuration.
    hub, revision
        Repository of the weights. Two of them have safetensors only on the branch of the hub's conversion
        bot.
    embedded
        File name of weights that come with geoattn.
    mean, std
        How the pretrained model wants pixels of [0, 1] normalised, per channel.
    """

    name: str
    title: str
    kind: Literal["lvit", "image", "text"]
    architecture: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    hub: str = ""
    revision: str = "main"
    embedded: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


# BERT-Tiny, ELECTRA-Small, ViT-B/16 and DeiT-B/16 with the sizes of their config.json.
_BERT_TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
_ELECTRA_SMALL = {
    "embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4,
    "intermediate_size": 1024,
}  # fmt: skip
_BASE_16 = {
    "image_size": 224, "patch_size": 16, "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072,
}  # fmt: skip
_HALF = (0.5, 0.5, 0.5)

#: Every model by name.
ZOO: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "lvit-digits", "L-ViT (digits)", "lvit", config={"image_size": 8, "patch_size": 2},
            embedded="lvit-digits.safetensors",
        ),
        Entry("lvit-mnist", "L-ViT (MNIST)", "lvit"),
        Entry("lvit-fashion-mnist", "L-ViT (Fashion-MNIST)", "lvit"),
        Entry(
            "lvit-cifar10", "L-ViT (CIFAR-10)", "lvit",
            config={"image_size": 32, "patch_size": 8, "channels": 3},
        ),
        Entry("bert-tiny", "BERT-Tiny", "text", "Bert", _BERT_TINY, "google/bert_uncased_L-2_H-128_A-2"),
        Entry(
            "electra-small", "ELECTRA-Small", "text", "Electra", _ELECTRA_SMALL,
            "google/electra-small-discriminator", revision="refs/pr/2",
        ),
        Entry(
            "vit-b16", "ViT-B/16", "image", "ViT", _BASE_16, "google/vit-base-patch16-224",
            mean=_HALF, std=_HALF,
        ),
        # The distilled model: the hub has the plain DeiT as a ViT, and the DeiT paper is about distillation.
        Entry(
            "deit-b16", "DeiT-B/16", "image", "DeiT", _BASE_16, "facebook/deit-base-distilled-patch16-224",
            revision="refs/pr/2", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
        ),
    )
}  # fmt: skip


def entry_of(name: str) -> Entry | None:
    """The entry of a name, written in any of the usual ways, or None.
    >>> entry_of("ViT-B/16").name, entry_of("BERT-Tiny").name, entry_of("L-ViT (MNIST)").name
    ('vit-b16', 'bert-tiny', 'lvit-mnist')
    """
    if not isinstance(name, str):
        raise GeoattnError(f"a model is named by a string; got {type(name).__name__}.")
    if name in ZOO:
        return ZOO[name]
    return next((entry for entry in ZOO.values() if entry.title.lower() == name.lower()), None)
