"""Forms of pictures: lists of Pillow images or of arrays, and folders of files."""

from __future__ import annotations

import io
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from geoattn._core.errors import GeoattnError
from geoattn._core.read_limit import check_need
from geoattn.datasets.forms.form import Asked, Form, Samples, nothing
from geoattn.datasets.forms.texts import as_labels

__all__ = ["FOLDER", "PICTURES", "is_picture", "open_image", "open_picture", "picture_samples"]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
_CHANNELS = (1, 3, 4)


def is_picture(given: Any) -> bool:
    """A Pillow image, or an array (height, width[, channel]) of bytes or of real numbers."""
    if hasattr(given, "convert") and hasattr(given, "size") and hasattr(given, "mode"):
        return True
    if not isinstance(given, np.ndarray) or (given.dtype != np.uint8 and given.dtype.kind != "f"):
        return False
    return given.ndim == 2 or (given.ndim == 3 and given.shape[-1] in _CHANNELS)


def is_pictures(given: Any) -> bool:
    """A list of them, or one array with a further axis in front."""
    if isinstance(given, np.ndarray):
        return given.ndim in (3, 4) and len(given) > 0 and given.dtype == np.uint8 and is_picture(given[0])
    if isinstance(given, (list, tuple)) and given:
        return is_picture(given[0]) or _is_picture_path(given[0])
    return is_picture(given)


def _is_picture_path(given: Any) -> bool:
    return isinstance(given, (str, Path)) and Path(given).suffix.lower() in SUFFIXES and Path(given).is_file()


def read_pictures(given: Any, asked: Asked) -> Samples:
    """The pictures as they are; they are resized when it is known for which model."""
    images = [given] if is_picture(given) and not is_stack(given) else list(given)
    return picture_samples([Path(image) if isinstance(image, str) else image for image in images], "images", asked)


def is_stack(given: Any) -> bool:
    """An array (b, height, width) of bytes is a stack unless its last axis is one of channels."""
    return isinstance(given, np.ndarray) and given.ndim == 3 and given.shape[-1] not in _CHANNELS


def picture_samples(images: list[Any], name: str, asked: Asked, **about: Any) -> Samples:
    """Checked pictures as samples; labels from the caller unless ``about`` has them."""
    if not images:
        raise nothing(name)
    for row, image in enumerate(images):
        if not (is_picture(image) or isinstance(image, (bytes, Path))):
            raise GeoattnError(f"{name}, row {row}: expected an image; got {type(image).__name__}.")
    about.setdefault("labels", as_labels(asked.labels, len(images)))
    return Samples(name, images=tuple(images), **about)


def is_folder(given: Any) -> bool:
    """A path to a folder."""
    return isinstance(given, (str, Path)) and Path(given).is_dir()


def read_folder(given: Any, asked: Asked) -> Samples:
    """The image files of a folder in the order of their names; the names of subfolders, if there are any, are labels.

    Files are opened when they are needed.
    """
    folder = Path(given)
    here = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    below = sorted(p for p in folder.glob("*/*") if p.suffix.lower() in SUFFIXES)
    if not here and not below:
        raise GeoattnError(
            f"{folder} holds no image ({', '.join(sorted(SUFFIXES))}), neither directly nor in its subfolders."
        )
    if here:
        return picture_samples(list(here), folder.name or str(folder), asked, source=str(folder), split="folder")
    labels = as_labels(asked.labels, len(below)) or tuple(path.parent.name for path in below)
    return picture_samples(
        list(below), folder.name or str(folder), asked, labels=labels, source=str(folder), split="folder"
    )


def open_picture(image: Any, where: str) -> UInt8[np.ndarray, "h w c"]:
    """Pixels of a picture of any of these kinds, with one channel or three; transparency is dropped."""
    from PIL import Image, ImageOps

    if isinstance(image, np.ndarray):
        return _from_array(image, where)
    try:
        if isinstance(image, (bytes, Path)):
            with open_image(image, where) as opened:
                image = ImageOps.exif_transpose(opened)
                image.load()
        grey = image.mode in ("1", "L", "I;16", "I", "F")
        pixels = np.asarray(image.convert("L" if grey else "RGB"))
    except GeoattnError:
        raise
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        MemoryError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise GeoattnError(
            f"{where}: not an image that can be read ({(str(error) or type(error).__name__).splitlines()[0]})."
        ) from None
    return pixels[..., None] if grey else pixels


def open_image(image: bytes | Path, where: str) -> Any:
    """The image of Pillow, not unpacked yet; an error of one line when it says that it has too many pixels."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is that of all readers
        # From memory: a chunk that says it has 4 GB is then as long as the file, and not allocated first.
        opened = Image.open(io.BytesIO(image if isinstance(image, bytes) else image.read_bytes()))
    width, height = opened.size
    # Turned and converted, it is in memory three times; a pixel takes four bytes.
    check_need(where, 12 * width * height, f"an image of {width:,} x {height:,} pixels")
    return opened


def _from_array(image: np.ndarray, where: str) -> UInt8[np.ndarray, "h w c"]:
    if image.dtype != np.uint8:
        if not np.isfinite(image).all() or image.min() < 0 or image.max() > 1:
            raise GeoattnError(
                f"{where}: an array of real numbers must hold pixels from 0 to 1; got {np.nanmin(image):.4g} to"
                f" {np.nanmax(image):.4g}. Give bytes from 0 to 255, or a tensor as the model takes it, in a list."
            )
        image = np.round(image * 255).astype(np.uint8)
    image = image[..., None] if image.ndim == 2 else image
    return image[..., :3] if image.shape[-1] == 4 else image


PICTURES = Form(
    "a list of images",
    "[image, another], of Pillow or arrays (height, width, 3) of bytes",
    frozenset({"image", "list", "array", "picture"}),
    is_pictures,
    read_pictures,
)
FOLDER = Form(
    "a folder of images",
    '"photos/"',
    frozenset({"image", "file", "path", "picture"}),
    is_folder,
    read_folder,
)
