"""One split of a data set, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Displayed):
    """Images or texts with their labels.

    Attributes
    ----------
    name
        What to call it in results, for example ``CIFAR-10 (JPEG)``.
    split
        ``train`` or ``test``.
    source
        Origin: a path, a package or a repository of the hub.
    classes
        Name of each label.
    labels
        (b,), each from 0 to len(classes) - 1.
    rows
        (b,), the place of each row in the whole split.
    checksum
        SHA-256 of the whole split. It depends neither on the order of the rows nor on the part that was asked for.
    images
        (b, channel, height, width); ``white`` is the value of full intensity. None for texts.
    texts
        One string per row. None for images.
    fitted
        Whether the images have the size that the image processor of a model gave them; nothing else resizes them.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=3)
    >>> digits
    Dataset(digits test: 3 1x8x8 images, 10 classes, from scikit-learn)
    >>> digits.pixels().shape, digits.targets().dtype, len(digits.subset([2, 0]))
    (torch.Size([3, 1, 8, 8]), torch.int64, 2)
    """

    name: str
    split: str
    source: str
    classes: tuple[str, ...]
    labels: Int[np.ndarray, " b"]
    rows: Int[np.ndarray, " b"]
    checksum: str
    images: UInt8[np.ndarray, "b c h w"] | None = None
    texts: tuple[str, ...] | None = None
    white: int = 255
    fitted: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        what = "texts" if self.images is None else "x".join(map(str, self.images.shape[1:])) + " images"
        size = f"{len(self)} {what}, {len(self.classes)} classes"
        return f"Dataset({self.name} {self.split}: {size}, from {self.source})"

    def subset(self, rows: Sequence[int] | Int[np.ndarray, " k"]) -> Dataset:
        """The given rows of this one, in that order.

        Examples
        --------
        >>> from geoattn.datasets import load_data
        >>> load_data("digits", split="test").subset([3, 1]).rows
        array([3, 1])
        """
        index: Any = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            labels=_frozen(self.labels[index]),
            rows=_frozen(self.rows[index]),
            images=None if self.images is None else _frozen(self.images[index]),
            texts=None if self.texts is None else tuple(self.texts[i] for i in index),
        )

    def pixels(self) -> Float[Tensor, "b c h w"]:
        """The images as a float32 tensor in [0, 1], as L-ViT takes them."""
        import torch

        if self.images is None:
            raise GeoattnError(f"{self.name} holds texts, not images; read .texts.")
        return torch.from_numpy(self.images.astype(np.float32) / self.white)

    def targets(self) -> Int[Tensor, " b"]:
        """The labels as a tensor."""
        import torch

        return torch.from_numpy(self.labels.astype(np.int64))


def _frozen(array: Any) -> Any:
    array.setflags(write=False)
    return array
