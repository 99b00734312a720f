"""What ``geoattn curvature`` does with a file that holds a graph by its edges."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.cli.printable import printable
from geoattn.cli.progress import LateProgress
from geoattn.graph.convention import Convention

__all__ = ["graph_curvature"]


def graph_curvature(
    path: Path, convention: Convention, *, edges: Any, threads: int | None, seed: int, quiet: bool, out: Path | None
) -> dict[str, Any]:
    """Solve, print a summary unless ``quiet``, and write edges.parquet to a folder; the summary for machines."""
    import warnings

    from geoattn._core.errors import DegenerateCurvatureWarning
    from geoattn.curvature.sparse.ollivier import sparse_ollivier_ricci
    from geoattn.graph.graph_files import read_graph_file
    from geoattn.graph.sparse_inputs import is_networkx

    graph = read_graph_file(path, directed=convention.directed)
    if is_networkx(graph) and graph.is_directed() and not convention.directed:
        convention = convention.but(direction="directed")
    started = time.perf_counter()
    total = graph.number_of_edges() if is_networkx(graph) else graph.nnz
    try:
        with LateProgress(total, "curvature") as bar, warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # the summary says it
            result = sparse_ollivier_ricci(
                graph, convention, edges=edges, threads=threads, seed=seed, progress=bar.update
            )
    except GeoattnError as error:
        raise GeoattnError(f"{path}: {error}") from None
    seconds = time.perf_counter() - started
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        table = result.to_pandas()
        table[["source", "target"]] = table[["source", "target"]].astype(str)
        table.to_parquet(out / "edges.parquet")
    summary = result.summary()
    finite = {k: None if isinstance(v, float) and v != v else v for k, v in summary.items()}
    answer = {"source": str(path), "nodes": result.shape[0], "seconds": round(seconds, 3), **finite}
    if quiet:
        return answer
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        f"{printable(str(path))}: {result.shape[0]:,} nodes, {result.edges:,} edges", style="bold", markup=False
    )
    if summary["values"]:
        console.print(
            f"mean {summary['mean']:.4f}, min {summary['min']:.4f}, max {summary['max']:.4f},"
            f" negative {summary['negative_share']:.1%}, distance to 1 {summary['distance_to_one']:.4f}"
        )
    console.print(f"convention {convention.name}: {convention.in_words()}", markup=False)
    if result.settings["rows"] != "as given" and convention.measure == "markov":
        console.print("Weights were divided by their row sums: A is the random walk of the graph.")
    console.print(
        f"{summary['values']:,} values, exact: largest relative duality gap {summary['max_gap']:.1e}. {seconds:.2f} s."
    )
    for status, count in summary["status"].items():
        if status != "solved":
            console.print(f"{count:,} edges: {status.replace('_', ' ')}.")
    if summary["degenerate"]:
        console.print(f"warning: {summary['degenerate']}.", style="bold yellow")
    return answer
