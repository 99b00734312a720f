"""The data sets of the papers: names, splits, sizes, where they lie in a folder and on the hub, checksums."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean

__all__ = ["CATALOGUE", "CHECKSUMS", "Entry", "Place", "entry_of"]

Format = Literal["idx", "parquet", "npz", "jsonl"]


@dataclass(frozen=True)
class Place:
    """Where a local copy may lie, relative to the root, and in what format."""

    path: str
    format: Format


@dataclass(frozen=True)
class Entry:
    """One data set. ``rows`` counts each split; ``splits`` maps our names to those of the files and the hub.

    The splits are the standard ones, which the paper uses (Appendix D.3). The labels of the SST-2 test set
    are not public, so its test split is GLUE's validation set, as everywhere. ``undivided`` sets come without
    a split: see `geoattn.load_data` for ours.
    """

    name: str
    title: str
    classes: tuple[str, ...]
    rows: dict[str, int]
    shape: tuple[int, int, int] | None = None  # channel, height, width; None: texts
    places: tuple[Place, ...] = ()
    hub: tuple[str, str | None] | None = None  # repository, configuration
    splits: dict[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    columns: tuple[str, ...] = ("image", "img")
    label: str = "label"
    undivided: bool = False


_TEN = tuple(map(str, range(10)))
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_OPINION = ("negative", "positive")
_ONE_SPLIT = {"train": "train", "test": "train"}

#: Every data set by name.
CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("digits", "digits", _TEN, {"train": 1437, "test": 360}, (1, 8, 8)),
        Entry(
            "mnist", "MNIST", _TEN, {"train": 60_000, "test": 10_000}, (1, 28, 28),
            (Place("mnist", "idx"), Place("mnist", "parquet")), ("ylecun/mnist", None),
        ),
        Entry(
            "fashion-mnist", "Fashion-MNIST", _FASHION, {"train": 60_000, "test": 10_000}, (1, 28, 28),
            (Place("fashion-mnist", "idx"), Place("fashion-mnist", "parquet")),
            ("zalando-datasets/fashion_mnist", None),
        ),
        Entry(
            "cifar10", "CIFAR-10", _CIFAR10, {"train": 50_000, "test": 10_000}, (3, 32, 32),
            (Place("cifar10", "parquet"), Place("cifar10-jpeg", "parquet")), ("uoft-cs/cifar10", None),
        ),
        Entry(
            "cifar10-lossless", "CIFAR-10 (first 6,102)", _CIFAR10, {"train": 5085, "test": 1017},
            (3, 32, 32), (Place("cifar10-lossless-6102.npz", "npz"),),
        ),
        Entry(
            "sst2", "SST-2", _OPINION, {"train": 67_349, "test": 872}, None, (Place("sst2", "parquet"),),
            ("nyu-mll/glue", "sst2"), {"train": "train", "test": "validation"}, ("sentence",),
        ),
        Entry(
            "imdb", "IMDb", _OPINION, {"train": 25_000, "test": 25_000}, None, (Place("imdb", "parquet"),),
            ("stanfordnlp/imdb", None), columns=("text",),
        ),
        # The repository's own "test" is version 1 of the same headlines: most of it is in "train".
        Entry(
            "headlines", "Headlines", ("not sarcastic", "sarcastic"), {"train": 22_882, "test": 5737}, None,
            (Place("headlines", "jsonl"),), ("raquiba/Sarcasm_News_Headline", None), _ONE_SPLIT,
            ("headline",), "is_sarcastic", undivided=True,
        ),
    )
}  # fmt: skip

#: `geoattn.datasets.formats.checksum` of the copies that geoattn was tested with: (name, format, split).
CHECKSUMS: dict[tuple[str, str, str], str] = {
    ("digits", "array", "train"): "b22df8dbcb364403f164c7687fb2162af6d51f5aaefb8d5e0728e6e0a79d775b",
    ("digits", "array", "test"): "5b043b4749436baf6d0a114b4f71d248df84cd9321d349f26cf660dca56d2aef",
    ("MNIST", "idx", "train"): "642d695eb9244c118ddf12f28bcf8a50fc2bce55e7398c22c6292e4af1257044",
    ("MNIST", "idx", "test"): "691dcacc477603ee229a35c7a6dc7d54c30b920f16d9efbee8fec1bb7fa9c1ab",
    ("Fashion-MNIST", "idx", "train"): "26e57bc063b8e5d537a0b82788519c8014642174696153148bbeb41eac68f83a",
    ("Fashion-MNIST", "idx", "test"): "23693a80049989b8b149f75d0a63859fdad4983b7a56834e1d8adbca13fad199",
    (
        "CIFAR-10 (JPEG)",
        "parquet",
        "train",
    ): "d807a9ed4244f06e9dc533eaa269888a671fb10aceba5413594207d235b06699",
    (
        "CIFAR-10 (JPEG)",
        "parquet",
        "test",
    ): "7eb790f576ad38e6c479d72889b79a9f68e8c2a196e186db0e5a57fd6ff12b55",
    (
        "CIFAR-10 (first 6,102)",
        "npz",
        "train",
    ): "b921cea0dc0248df85da374225b5bc7f2e53350d89b320c54eacc39954a33864",
    (
        "CIFAR-10 (first 6,102)",
        "npz",
        "test",
    ): "9fc898dd4dc0bcd324a04fad0bf49e146ec41ca82c8610937b69fe9a97002b0c",
    ("SST-2", "parquet", "train"): "2047917d3850ee43c57651431453ca296446a96fd63ff33ea47cbf972c56eb0e",
    ("SST-2", "parquet", "test"): "638e65f785fe6f60d29ac056613e97bb56af5a8946efa88662a2354b802c8f78",
    ("IMDb", "parquet", "train"): "83c3d1d8ad66ca202088a5632fb3bfffcb76830c1df0f3801640bf684c41745b",
    ("IMDb", "parquet", "test"): "4b95f7d6e2a9b2d7797afe0be3c0b0db57970f52ed1f30bba860384b5ab2be76",
    ("Headlines", "jsonl", "train"): "37603ade36a1eb62321b9867a9b6582e8902787b9b2134d11e6934d6b6865c72",
    ("Headlines", "jsonl", "test"): "37744fa745d351d98198d7f83365d72ed24fdc671d5691aa71f5de821ecfa464",
}


def entry_of(name: str) -> Entry:
    """The entry of a name, or an error that lists the names."""
    if not isinstance(name, str) or name not in CATALOGUE:
        near = did_you_mean(name, CATALOGUE)
        raise GeoattnError(f"unknown data set {name!r}; expected one of {', '.join(CATALOGUE)}.{near}")
    return CATALOGUE[name]
