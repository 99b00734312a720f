"""How well numbers of a sample tell that a classifier is wrong about it: cross-validated scores and their AUROC."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

__all__ = ["auroc", "auroc_at_equal_length", "bootstrap", "held_out_scores"]

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


def auroc(scores: Any, wrong: Any) -> float:
    """Probability that a wrong sample has a higher score than a right one, ties counted half; NaN without both.

    >>> auroc([0.9, 0.4, 0.4, 0.1], [True, True, False, False])
    0.875
    """
    wrong = np.asarray(wrong, dtype=bool)
    positive, negative = int(wrong.sum()), int((~wrong).sum())
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(np.asarray(scores, dtype=np.float64))
    return float((ranks[wrong].sum() - positive * (positive + 1) / 2) / (positive * negative))


def auroc_at_equal_length(scores: Any, wrong: Any, tokens: Any, *, groups: int = 5) -> float:
    """The same over pairs of samples of about equal length: both in one of ``groups`` quantile groups of ``tokens``.

    Length alone then predicts next to nothing. Groups count by their number of pairs.
    """
    scores, wrong, tokens = np.asarray(scores), np.asarray(wrong, dtype=bool), np.asarray(tokens)
    cuts = np.quantile(tokens, np.linspace(0, 1, groups + 1)[1:-1])
    group = np.searchsorted(cuts, tokens, side="right")
    total = pairs = 0.0
    for k in np.unique(group):
        mine = group == k
        count = float(wrong[mine].sum()) * float((~wrong[mine]).sum())
        if count:
            total += count * auroc(scores[mine], wrong[mine])
            pairs += count
    return total / pairs if pairs else float("nan")


def bootstrap(statistic: Any, rows: int, *, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of ``statistic(places)`` over rows drawn with replacement."""
    rng = np.random.default_rng(seed)
    drawn: Sequence[Int[np.ndarray, " n"]] = [rng.integers(0, rows, rows) for _ in range(resamples)]
    low, high = np.nanquantile([statistic(places) for places in drawn], [0.025, 0.975])
    return float(low), float(high)
