"""`features` as a transformer of scikit-learn, for pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from geoattn._core.errors import GeoattnError
from geoattn.profiles.feature_table import features

__all__ = ["AttentionGeometry"]


class AttentionGeometry(TransformerMixin, BaseEstimator):
    """Geometry of the attention of a model on each sample, as a step of a scikit-learn pipeline.

    ``fit`` looks at one batch to learn the names of the columns; nothing is estimated from the data, so there is
    nothing to leak from test to train. ``transform`` gives what `geoattn.features` gives, as an array.

    Parameters
    ----------
    model
        A PyTorch model with attention.
    tokenizer
        For texts: then X is a list of strings. Without one X is an array of images or of token numbers.
    convention, layers, edges, eigenvalues, seed
        As in `geoattn.features`.
    batch_size
        Samples in one forward pass.

    Examples
    --------
    >>> import geoattn as ga, numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> digits = ga.load_data("digits", split="test", limit=12)
    >>> geometry = ga.AttentionGeometry(ga.load_model("lvit-digits"), edges=16)
    >>> pipeline = make_pipeline(geometry, StandardScaler(), LogisticRegression())
    >>> pipeline.fit(digits.pixels(), digits.labels < 5).predict(digits.pixels()).shape
    (12,)
    """

    def __init__(
        self,
        model: Any = None,
        *,
        tokenizer: Any = None,
        convention: Any = "markov",
        layers: Any = None,
        edges: Any = 64,
        eigenvalues: Any = 5,
        seed: Any = 0,
        batch_size: Any = 16,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.convention = convention
        self.layers = layers
        self.edges = edges
        self.eigenvalues = eigenvalues
        self.seed = seed
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> AttentionGeometry:
        """Learn the names of the columns from the first samples."""
        if self.model is None:
            raise GeoattnError("AttentionGeometry needs a model: AttentionGeometry(model).")
        if len(X) == 0:
            raise GeoattnError("AttentionGeometry needs at least one sample; got none.")
        self.feature_names_out_ = np.asarray(self._table(X[: self.batch_size]).columns, dtype=object)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """(samples, features) float32; columns that a sample does not have are 0."""
        check_is_fitted(self)
        table = self._table(X).reindex(columns=list(self.feature_names_out_))
        return table.fillna(0.0).to_numpy(dtype=np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns, as `geoattn.features` has them."""
        check_is_fitted(self)
        return self.feature_names_out_

    def _table(self, X: Any) -> Any:
        options = {name: getattr(self, name) for name in ("convention", "layers", "edges", "eigenvalues", "seed")}
        return features(self.model, list(self._batches(X)), **options)

    def _batches(self, X: Any) -> Any:
        import torch

        for first in range(0, len(X), self.batch_size):
            some = X[first : first + self.batch_size]
            if self.tokenizer is not None:
                texts = [str(text) for text in some]
                yield dict(self.tokenizer(texts, return_tensors="pt", padding=True, truncation=True))
            else:
                yield torch.as_tensor(np.asarray(some)) if not isinstance(some, torch.Tensor) else some
