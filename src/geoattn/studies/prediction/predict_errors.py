"""Does the geometry of attention tell where a fine-tuned classifier is wrong, beyond its confidence and the length?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geoattn._core.files import write_atomically
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.feed import feed
from geoattn.datasets.loader import load_data
from geoattn.perturbations.classifier_accuracy import class_logits
from geoattn.profiles.feature_table import features
from geoattn.runs.trial import workspace
from geoattn.studies.engine.cells import by
from geoattn.studies.engine.finding import Finding
from geoattn.studies.engine.fine_tuned import FineTuned, fine_tune
from geoattn.studies.engine.study import Pairs, Study
from geoattn.studies.engine.tasks import title_of
from geoattn.studies.prediction.error_scores import auroc, held_out_scores, length_groups, resampled_counts
from geoattn.studies.ricci.adjusted_training import short

__all__ = ["SETS", "STUDY", "trial"]

_MODELS = {"bert-tiny-questions": "BERT-Tiny", "minilm": "MiniLM"}
_DATA = ("sst2", "imdb")
_BASE = "confidence + length"
#: Sets of numbers from which errors are predicted.
SETS = ("length", "confidence", "attention entropy", "curvature", "Laplacian eigenvalues", "geometry", _BASE,
        f"{_BASE} + attention entropy", f"{_BASE} + geometry")  # fmt: skip
_BLOCK = 50  # test rows whose features are kept together
_COLUMNS = {
    "attention entropy": ".row_entropy",
    "curvature": ".curvature.",
    "Laplacian eigenvalues": ".laplacian.",
    "geometry": ".",
}


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune a model, and score the test rows from each of `SETS` by a regression that has not seen them.

    ``wrong`` and ``tokens`` have an entry for each test row, ``scores[set]`` a held-out score, high where an error is
    expected.
    """
    done = fine_tune(
        config["model"], config["data"], seed=config["seed"], rows=config["rows"], epochs=config["epochs"],
        length=config["length"],
    )  # fmt: skip
    test = load_data(config["data"], split="test", limit=config["test_rows"], seed=0)
    logits, table = _measure(done, test, config)
    wrong = logits.argmax(1) != test.labels
    tokens = table.pop("tokens").to_numpy(dtype=np.float64)
    columns = {name: table.loc[:, table.columns.str.contains(part, regex=False)] for name, part in _COLUMNS.items()}
    parts: dict[str, np.ndarray] = {
        "length": np.stack([tokens, np.log(tokens)], axis=1),
        "confidence": np.abs(logits[:, :1] - logits[:, 1:2]),
        **{name: some.fillna(0.0).to_numpy(dtype=np.float64) for name, some in columns.items()},
    }
    scores = {name: held_out_scores([parts[part] for part in name.split(" + ")], wrong) for name in SETS}
    return short({
        "train_accuracy": done.train_accuracy, "test_accuracy": float(1 - wrong.mean()), "columns": table.shape[1],
        "wrong": wrong.astype(int).tolist(), "tokens": tokens.astype(int).tolist(),
        "scores": {name: np.round(score, 4).tolist() for name, score in scores.items()},
    })  # fmt: skip


def _measure(done: FineTuned, test: Dataset, config: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """Logits and features of the test rows, block by block; a trial that was cut short goes on after the last one."""
    import pandas as pd

    folder, logits, tables = workspace(), [], []
    for block, first in enumerate(range(0, len(test), _BLOCK)):
        rows = test.subset(range(first, min(len(test), first + _BLOCK)))
        batches = list(feed(rows, done.model, done.tokenizer))
        with torch.no_grad():
            logits += [class_logits(done.model, batch) for batch in batches]
        kept = None if folder is None else folder / f"features-{block}.parquet"
        if kept is not None and kept.exists():
            tables.append(pd.read_parquet(kept))
            continue
        seed = config["seed"] + 1000 * block
        tables.append(features(done.model, batches, edges=config["edges"], seed=seed, threads=1))
        if kept is not None:
            write_atomically(kept, tables[-1].to_parquet)
    return torch.cat(logits).double().numpy(), pd.concat(tables, ignore_index=True)


def _sizes(size: str) -> list[dict[str, Any]]:
    """paper: three seeds and at most 1,000 test rows; small: one seed and 500; smoke: a random model, a few rows."""
    common = {"rows": 8000, "epochs": 2, "length": 128, "edges": 64}
    if size == "smoke":
        return [{"model": "random-bert", "data": "sst2", "seed": 0, "test_rows": 60, **common, "rows": 64, "epochs": 1,
                 "length": 12, "edges": 8}]  # fmt: skip
    seeds, rows = (3, 1000) if size == "paper" else (1, 500)
    return [
        {"model": model, "data": data, "seed": seed, "test_rows": rows, **common}
        for seed in range(seeds)
        for model in _MODELS
        for data in _DATA
    ]


class _Cell:
    """The trials of one model and data set: seeds share the test rows, so rows are resampled for all seeds at once."""

    def __init__(self, cell: Pairs) -> None:
        self.results = [result for _, result in cell]
        self.rows = len(self.results[0]["wrong"])
        self._counts = resampled_counts(self.rows)
        self._known: dict[tuple[str, bool], tuple[float, np.ndarray]] = {}

    def value(self, name: str, *, equal_length: bool = False) -> tuple[float, np.ndarray]:
        """Mean AUROC of a set over the seeds, of the rows and of each resampling of them."""
        if (name, equal_length) not in self._known:
            found = []
            for result in self.results:
                group = length_groups(result["tokens"]) if equal_length else None
                given = {"scores": result["scores"][name], "wrong": result["wrong"], "group": group}
                found.append((auroc(**given), auroc(**given, counts=self._counts)))
            one, many = zip(*found, strict=True)
            self._known[name, equal_length] = float(np.mean(one)), np.mean(many, axis=0)
        return self._known[name, equal_length]

    def against(self, name: str, base: str | None, *, equal_length: bool = False) -> tuple[float, float, float]:
        """How much more AUROC a set has than another one, or than chance, with its interval over rows."""
        one, many = self.value(name, equal_length=equal_length)
        chance, chances = (0.5, 0.5) if base is None else self.value(base, equal_length=equal_length)
        low, high = np.nanquantile(many - chances, [0.025, 0.975])
        return one - chance, float(low), float(high)


def _name(config: dict[str, Any]) -> str:
    return f"{_MODELS.get(config['model'], config['model'])} on {title_of(config['data'])}"


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for cell in by(pairs, "model", "data").values():
        seen, config = _Cell(cell), cell[0][0]
        for name in SETS:
            above, low, high = seen.against(name, None)
            equal = seen.against(name, None, equal_length=True)
            rows.append({
                "model": config["model"], "data": config["data"], "trials": len(cell), "test_rows": seen.rows,
                "test_accuracy": float(np.mean([r["test_accuracy"] for r in seen.results])),
                "errors": float(np.mean([sum(r["wrong"]) for r in seen.results])), "set": name,
                "auroc": 0.5 + above, "low": 0.5 + low, "high": 0.5 + high,
                "auroc_equal_length": 0.5 + equal[0], "equal_length_low": 0.5 + equal[1],
                "equal_length_high": 0.5 + equal[2],
            })  # fmt: skip
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    questions = (
        ("curvature of attention predicts errors at equal length", "curvature", None, True),
        ("geometry of attention predicts errors at equal length", "geometry", None, True),
        ("geometry of attention predicts errors better than attention entropy", "geometry", "attention entropy", False),
        ("geometry of attention predicts errors better than confidence", "geometry", "confidence", False),
        ("geometry of attention adds to confidence and length", f"{_BASE} + geometry", _BASE, False),
    )
    findings = []
    for cell in by(pairs, "model", "data").values():
        seen = _Cell(cell)
        for claim, name, base, equal_length in questions:
            effect, low, high = seen.against(name, base, equal_length=equal_length)
            verdict = "replicated" if low > 0 else "contradicted" if high < 0 else "not replicated"
            other = "chance" if base is None else base
            measure = f"AUROC of {name} minus that of {other}; interval over test rows"
            findings.append(Finding(claim, _name(cell[0][0]), effect, low, high, len(cell), verdict, measure=measure))
    return findings


def _figure(pairs: Pairs) -> Any:
    """AUROC of each set with its interval, a panel for each model and data set."""
    from matplotlib.figure import Figure

    cells = list(by(pairs, "model", "data").values())
    figure = Figure(figsize=(3.0 * len(cells) + 1.5, 3.2), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(cells), sharey=True))
    for ax, cell in zip(axes, cells, strict=True):
        seen = _Cell(cell)
        for place, name in enumerate(reversed(SETS)):
            for equal_length, colour, shift in ((False, "tab:blue", 0.15), (True, "tab:orange", -0.15)):
                above, low, high = seen.against(name, None, equal_length=equal_length)
                ax.plot([0.5 + low, 0.5 + high], [place + shift] * 2, color=colour, lw=1)
                ax.plot([0.5 + above], [place + shift], "o", color=colour, ms=3)
        ax.axvline(0.5, color="gray", lw=0.5)
        ax.set_title(_name(cell[0][0]), fontsize=9)
        ax.set_xlabel("AUROC (orange: at equal length)", fontsize=8)
    axes[0].set_yticks(range(len(SETS)), list(reversed(SETS)), fontsize=7)
    return figure


STUDY = Study(
    "predict-errors", 1, "geoattn.studies.prediction.predict_errors:trial", _sizes, _table, _figure, _verdict,
    how="BERT-Tiny and MiniLM fine-tuned on 8,000 rows for two epochs; errors on test rows from ga.features by a ridge"
    " logistic regression, five folds three times; intervals over test rows.", partial=True,
)  # fmt: skip
