"""``geoattn train``: the papers' models on a data set, with or without a regulariser."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from geoattn._core.errors import GeoattnError
from geoattn.cli.printable import printable
from geoattn.cli.progress import LateProgress

__all__ = ["train"]


def train(
    data: Annotated[str, typer.Argument(help="digits, mnist, fashion-mnist, cifar10, sst2, imdb or headlines.")],
    variance: Annotated[
        str | None, typer.Option(help="increase or decrease the variance of attention.", show_default=False)
    ] = None,
    curvature: Annotated[
        str | None,
        typer.Option(help="increase, decrease or to_one: exact curvature of a sample of maps.", show_default=False),
    ] = None,
    entropy: Annotated[
        str | None, typer.Option(help="increase or decrease the entropy of attention rows.", show_default=False)
    ] = None,
    edge_mask: Annotated[
        float | None, typer.Option(help="Share of attention edges to remove in training.", show_default=False)
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(help="Dropout on attention weights in training.", show_default=False)
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Divide attention logits by this.", show_default=False)
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="Weight of the penalty.", show_default=False)] = None,
    a: Annotated[float | None, typer.Option("--a", help="Scale inside h of --variance.", show_default=False)] = None,
    b: Annotated[float | None, typer.Option("--b", help="Shift inside h of --variance.", show_default=False)] = None,
    epochs: Annotated[int | None, typer.Option(help="Default: the paper's, 20 (CIFAR-10: 40).")] = None,
    batch: Annotated[int | None, typer.Option(help="Default: the paper's, 64 images or 16 texts.")] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate. Default: 5e-4 for L-ViT, 5e-6 for texts.")] = None,
    early_stopping: Annotated[
        bool, typer.Option("--early-stopping", help="Stop at the paper's accuracy on a tenth of the rows.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="At most so many training rows.", show_default=False)] = None,
    test_limit: Annotated[int | None, typer.Option(help="At most so many test rows.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order, dropout and samples.")] = 0,
    monitor_every: Annotated[
        int | None, typer.Option(help="Log curvature, variance, entropy, PL ratio every so many steps.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    root: Annotated[Path | None, typer.Option("--data-root", help="Folder of local data sets.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoint.safetensors and log.jsonl; a run cut short goes on from there."),
    ] = None,
) -> None:
    """Train L-ViT or BERT-Tiny as in the Ricci paper; the same options and seed give the same weights.

    Several processes or GPUs: torchrun --nproc-per-node 2 -m geoattn train ... divides each batch among them.
    """
    shared = {} if gamma is None else {"gamma": gamma}
    wanted: list[tuple[str, dict[str, Any]]] = []
    if variance is not None:
        shape = {name: value for name, value in (("a", a), ("b", b)) if value is not None}
        wanted.append(("variance", {"direction": variance, **shared, **shape}))
    elif a is not None or b is not None:
        raise GeoattnError("--a and --b belong to --variance.")
    for name, value in (("curvature", curvature), ("entropy", entropy)):
        if value is not None:
            wanted.append((name, {"direction": value, **shared}))
    if gamma is not None and not wanted:
        raise GeoattnError("--gamma needs a penalty: --variance, --curvature or --entropy.")
    for name, key, number in (
        ("edge-mask", "rate", edge_mask), ("dropout", "rate", dropout), ("temperature", "temperature", temperature),
    ):  # fmt: skip
        if number is not None:
            wanted.append((name, {key: number}))

    # Heavy imports wait until --help can no longer be meant.
    from geoattn.training.distributed import Processes, joined
    from geoattn.training.loop import train as run
    from geoattn.training.recipe import Recipe

    recipe = Recipe(
        data, epochs=epochs, batch=batch, rate=rate, regularisers=tuple(wanted), limit=limit, test_limit=test_limit,
        seed=seed, early_stopping=early_stopping, monitor_every=monitor_every,
    )  # fmt: skip
    if out is not None:
        from geoattn.cli.folder import check_folder

        check_folder(out)

    def report(_step: int, row: dict[str, Any]) -> None:
        if "epoch" in row and not as_json:
            print(
                f"epoch {row['epoch']:3d}  loss {row['loss']:.4f}  penalty {row['penalty']:+.4f}  "
                f"test accuracy {row['test_accuracy']:.4f}",
                file=sys.stderr,
            )

    with joined(device) as device, ExitStack() as stack:
        bars: list[LateProgress] = []

        def show(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(LateProgress(total, f"training on {data}", "steps")))
            bars[0].update(done)

        first = Processes().rank == 0  # of the processes that torchrun started
        done = run(
            recipe, out, root=root, device=device, checkpoint_every=checkpoint_every, log=report,
            progress=show if first else None,
        )  # fmt: skip
    if not first:
        return
    summary = {
        "recipe": done.recipe.as_dict(), "train_accuracy": done.train_accuracy, "test_accuracy": done.test_accuracy,
        "steps": done.steps, "stopped_early": done.stopped_early, "history": list(done.history),
    }  # fmt: skip
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    print(f"train accuracy {done.train_accuracy:.4f}, test accuracy {done.test_accuracy:.4f}, {done.steps} steps")
    if out is not None:
        print(printable(f"written to {out}: checkpoint.safetensors, log.jsonl"))
