"""A training run as plain values: model, data, regulariser, and the paper's settings as defaults."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from geoattn._core.arguments import read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn.training.attachments import attachment_class

__all__ = ["Recipe"]

_IMAGES = {"digits", "mnist", "fashion-mnist", "cifar10", "cifar10-lossless"}
_TEXTS = {"sst2", "imdb", "headlines"}
_SAMPLED = ("curvature", "lipschitz")  # regularisers that draw samples by a seed
_STOP_AT = {  # Appendix D.2 and E.3; digits is not in the paper
    "mnist": 0.97, "fashion-mnist": 0.87, "cifar10": 0.50, "cifar10-lossless": 0.50, "digits": 0.90,
    "imdb": 0.88, "headlines": 0.84, "sst2": 0.79,
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """What a run depends on, and nothing else: the same recipe gives the same weights.

    Defaults are Appendix D of the Ricci paper: Adam; L-ViT with learning rate 5e-4, batches of 64 and 20 epochs
    (CIFAR-10: 40); BERT-Tiny from random weights with 5e-6, batches of 16 and 20 epochs.

    Attributes
    ----------
    data
        A data set by name.
    epochs, batch, rate
        None: the paper's.
    regularisers
        (name, settings) pairs, such as ``(("variance", {"direction": "increase"}),)``; the names are those of
        `attachment_names`.
    limit, test_limit
        At most so many rows of each split, drawn by ``data_seed``.
    seed
        Of the weights, the order of the rows, dropout and samples.
    early_stopping
        Stop when the accuracy on a tenth of the training rows, held out, reaches that of Appendix E.3 (digits: 0.9).
    length
        Longest text, in tokens.
    changes
        Settings of the model that differ, such as ``{"depth": 2}``.

    Examples
    --------
    >>> from geoattn.training import Recipe
    >>> recipe = Recipe("cifar10").filled()
    >>> recipe.model, recipe.epochs, recipe.batch, recipe.rate
    ('lvit-cifar10', 40, 64, 0.0005)
    """

    data: str
    epochs: int | None = None
    batch: int | None = None
    rate: float | None = None
    regularisers: Any = ()
    limit: int | None = None
    test_limit: int | None = None
    seed: int = 0
    data_seed: int = 0
    early_stopping: bool = False
    length: int = 128
    changes: dict[str, Any] = field(default_factory=dict)
    monitor_every: int | None = None

    def __post_init__(self) -> None:
        if self.data not in _IMAGES | _TEXTS:
            raise GeoattnError(
                f"unknown data set {self.data!r}; expected one of {', '.join(sorted(_IMAGES | _TEXTS))}."
            )
        for name in ("epochs", "batch", "limit", "test_limit", "monitor_every"):
            if getattr(self, name) is not None:
                read_count(name, getattr(self, name), least=1)
        for name in ("seed", "data_seed"):
            read_count(name, getattr(self, name), least=0)
        read_count("length", self.length, least=4)
        if self.rate is not None:
            read_number("rate", self.rate, above=0)
        pairs = tuple((str(name), dict(settings)) for name, settings in self.regularisers)
        object.__setattr__(self, "regularisers", pairs)
        self.build()  # bad settings fail here, not after the data were loaded

    @property
    def is_text(self) -> bool:
        """True for BERT-Tiny on texts."""
        return self.data in _TEXTS

    @property
    def model(self) -> str:
        """The model of the paper for this data set."""
        if self.is_text:
            return "bert-tiny"
        return {"cifar10-lossless": "lvit-cifar10"}.get(self.data, f"lvit-{self.data}")

    @property
    def stop_at(self) -> float | None:
        """Accuracy at which training stops; None: never."""
        return _STOP_AT[self.data] if self.early_stopping else None

    def filled(self) -> Recipe:
        """With the paper's values where nothing was given."""
        from dataclasses import replace

        return replace(
            self,
            epochs=self.epochs or (40 if self.data.startswith("cifar10") else 20),
            batch=self.batch or (16 if self.is_text else 64),
            rate=self.rate or (5e-6 if self.is_text else 5e-4),
        )

    def build(self) -> list[Any]:
        """The regularisers, in order; samples follow the seed of the recipe."""
        built = []
        for name, settings in self.regularisers:
            kind = attachment_class(name)
            extra = {"seed": self.seed} if name in _SAMPLED and "seed" not in settings else {}
            try:
                built.append(kind(**settings, **extra))
            except TypeError as error:
                raise GeoattnError(f"regulariser {name!r}: {str(error).split('__init__() ')[-1]}.") from None
        return built

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for files."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def key(self) -> str:
        """A hash of everything in it."""
        return hashlib.sha256(json.dumps(self.filled().as_dict(), sort_keys=True).encode()).hexdigest()[:16]
