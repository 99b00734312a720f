"""`features` as a transformer of scikit-learn, for pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from geoattn._core.errors import GeoattnError
from geoattn.datasets.forms.form import came
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
    tokenizer, column
        For texts, as in `geoattn.features`: X is a list, an array or a column of strings, or a DataFrame whose
        ``column`` holds them. Without a tokenizer the one beside the model is taken. Other arrays, and DataFrames of
        numbers, are images or token numbers as the model takes them.
    convention, layers, edges, eigenvalues, seed
        As in `geoattn.features`.
    batch_size
        Images or rows of token numbers in one forward pass; how many texts are in one makes no difference.

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
        column: Any = None,
        convention: Any = "markov",
        layers: Any = None,
        edges: Any = 64,
        eigenvalues: Any = 5,
        seed: Any = 0,
        batch_size: Any = 16,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.column = column
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
        if not hasattr(X, "__len__") or len(X) == 0:
            raise GeoattnError(f"AttentionGeometry needs at least one sample; got {came(X)}.")
        first = X if isinstance(X, str) else X[: self.batch_size]
        self.feature_names_out_ = np.asarray(self._table(first).columns, dtype=object)
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
        names = ("tokenizer", "column", "convention", "layers", "edges", "eigenvalues", "seed")
        return features(self.model, self._samples(X), **{name: getattr(self, name) for name in names})

    def _samples(self, X: Any) -> Any:
        """Numbers as batches of the model; texts, and what has columns, as `features` takes them."""
        import torch

        if isinstance(X, torch.Tensor):
            return list(X.split(self.batch_size))
        if self.column is not None or isinstance(X, str) or (isinstance(X, (list, tuple)) and isinstance(X[0], str)):
            return X
        try:
            array = np.asarray(X)
        except ValueError:  # rows of different lengths
            return X
        if array.dtype.kind in "biuf":
            return list(torch.tensor(array).split(self.batch_size))  # a copy: PyTorch wants arrays that it may write
        flat = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1 and not hasattr(X, "columns"))
        return array.ravel().tolist() if flat else X
