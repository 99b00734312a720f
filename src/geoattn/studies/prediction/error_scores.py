"""How well numbers of a sample tell that a classifier is wrong about it: cross-validated scores and their AUROC."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

__all__ = ["auroc", "held_out_scores", "length_groups", "resampled_counts"]

_STRENGTHS = (1e-2, 1e-1, 1.0, 10.0, 100.0)  # inverse penalties among which an inner cross-validation chooses


def held_out_scores(
    parts: Sequence[np.ndarray], wrong: Bool[np.ndarray, " n"], *, folds: int = 5, repeats: int = 3, seed: int = 0
) -> Float[np.ndarray, " n"]:
    """A score for each sample, from a logistic regression that has not seen it: high where an error is expected.

    ``parts`` are tables (n, k) of columns. Columns are standardised and divided by the square root of k, so that a part
    of many columns weighs no more than a part of one. The strength of the ridge penalty is chosen by AUROC in an inner
    cross-validation. Both see the training folds alone. Folds are stratified, and the scores of ``repeats`` divisions
    are averaged.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    table = np.hstack(parts)
    weights = np.concatenate([np.full(part.shape[1], part.shape[1] ** -0.5) for part in parts])
    scores = np.zeros(len(wrong))
    for repeat in range(repeats):
        division = StratifiedKFold(folds, shuffle=True, random_state=seed * repeats + repeat)
        for train, test in division.split(table, wrong):
            inner = StratifiedKFold(3, shuffle=True, random_state=0)
            weigh = FunctionTransformer(lambda x: x * weights)
            regression = make_pipeline(StandardScaler(), weigh, LogisticRegression(max_iter=300))
            grid = {"logisticregression__C": _STRENGTHS}
            search = GridSearchCV(regression, grid, scoring="roc_auc", cv=inner)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                search.fit(table[train], wrong[train])
            scores[test] += search.decision_function(table[test])
    return scores / repeats


def auroc(scores: Any, wrong: Any, *, group: Any = None, counts: Any = None) -> Any:
    """Probability that a wrong sample has a higher score than a right one, ties counted half; NaN without both.

    With ``group`` (n,) only pairs of one group count. With ``counts`` (r, n), how often each sample is there in each of
    r resamplings, the result is (r,).

    >>> auroc([0.9, 0.4, 0.4, 0.1], [True, True, False, False])
    0.875
    """
    scores, wrong = np.asarray(scores, dtype=np.float64), np.asarray(wrong, dtype=bool)
    above, below = scores[wrong][:, None], scores[~wrong]
    pairs = np.ones((len(above), len(below)))
    if group is not None:
        pairs = (np.asarray(group)[wrong][:, None] == np.asarray(group)[~wrong]).astype(np.float64)
    ordered = pairs * ((above > below) + 0.5 * (above == below))
    weights = np.ones((1, len(scores))) if counts is None else np.asarray(counts, dtype=np.float64)
    first, second = weights[:, wrong], weights[:, ~wrong]
    with np.errstate(invalid="ignore"):
        found = ((first @ ordered) * second).sum(axis=1) / ((first @ pairs) * second).sum(axis=1)
    return float(found[0]) if counts is None else found


def length_groups(tokens: Any, groups: int = 5) -> Int[np.ndarray, " n"]:
    """Groups of samples of about equal length, between quantiles of ``tokens``.

    Within such a group length predicts next to nothing.
    """
    tokens = np.asarray(tokens)
    return np.searchsorted(np.quantile(tokens, np.linspace(0, 1, groups + 1)[1:-1]), tokens, side="right")


def resampled_counts(rows: int, *, resamples: int = 1000, seed: int = 0) -> Int[np.ndarray, "r n"]:
    """How often each row comes in each resampling with replacement."""
    return np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), size=resamples)
