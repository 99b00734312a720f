"""The figure of docs/graphs.md: python examples/make_karate_figure.py"""

from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import geoattn as ga


def main() -> None:
    """Edges of the karate club by their curvature under grc-0.6."""
    graph = nx.karate_club_graph()
    for _, _, data in graph.edges(data=True):
        data["weight"] = 1.0
    kappa = ga.ollivier_ricci(graph, "grc-0.6").to_dict()
    figure, ax = plt.subplots(figsize=(7, 4.2))
    place = nx.spring_layout(graph, seed=3)
    limit = float(np.abs(list(kappa.values())).max())
    lines = nx.draw_networkx_edges(
        graph, place, edgelist=list(kappa), edge_color=list(kappa.values()), edge_cmap=plt.get_cmap("coolwarm_r"),
        edge_vmin=-limit, edge_vmax=limit, width=2, ax=ax,
    )  # fmt: skip
    nx.draw_networkx_nodes(graph, place, node_size=60, node_color="#333333", ax=ax)
    ax.set_axis_off()
    figure.colorbar(lines, ax=ax, label="Ollivier-Ricci curvature")
    figure.savefig(Path(__file__).parents[1] / "docs" / "images" / "karate.png", dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
