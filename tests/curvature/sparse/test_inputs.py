"""Every kind of sparse input with every function that takes a graph: the same answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array, csr_matrix

import geoattn as ga

pytestmark = [
    pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CS:UserWarning"),  # of torch, where the test makes such a tensor
]
NODES = 30
LIMIT = ga.Convention(length="hop", measure="uniform", alpha="limit")


def weighted(*, directed: bool) -> coo_array:
    graph = (
        nx.gnm_random_graph(NODES, 140, seed=5)
        if directed
        else nx.connected_watts_strogatz_graph(NODES, 6, 0.3, seed=2)
    )
    rng = np.random.default_rng(1)
    matrix = nx.to_scipy_sparse_array(graph, dtype=float).toarray() * rng.uniform(0.1, 1.0, (NODES, NODES))
    return coo_array(matrix if directed else np.maximum(matrix, matrix.T))


def torch_coo(matrix: coo_array) -> torch.Tensor:
    index, weight = edge_list(matrix)
    return torch.sparse_coo_tensor(index, weight, (NODES, NODES), check_invariants=True)


def edge_list(matrix: coo_array) -> tuple[torch.Tensor, torch.Tensor]:
    order = np.random.default_rng(0).permutation(matrix.nnz)  # in any order
    return torch.tensor(np.stack(matrix.coords)[:, order]).long(), torch.tensor(matrix.data[order])


def data(matrix: coo_array, **names: Any) -> SimpleNamespace:
    """As PyTorch Geometric has it: absent attributes are None."""
    index, weight = edge_list(matrix)
    made = {"edge_index": index, "edge_weight": None, "edge_attr": None, "num_nodes": NODES}
    return SimpleNamespace(**made | {name: shape(weight) for name, shape in names.items()})


def named(matrix: coo_array) -> nx.Graph:
    kind = nx.Graph if (abs(matrix - matrix.T) > 0).nnz == 0 else nx.DiGraph
    graph = kind()
    graph.add_nodes_from(f"node {v}" for v in range(NODES))
    graph.add_weighted_edges_from(
        (f"node {i}", f"node {j}", w) for i, j, w in zip(*matrix.coords, matrix.data, strict=True)
    )
    return graph


INPUTS = {
    "csr array": csr_array,
    "csr matrix": csr_matrix,
    "csc": lambda m: m.tocsc(),
    "lil": lambda m: m.tolil(),
    "networkx": lambda m: nx.convert_node_labels_to_integers(named(m)),
    "networkx with names": named,
    "torch coo": torch_coo,
    "torch csr": lambda m: torch_coo(m).to_sparse_csr(),
    "torch csc": lambda m: torch_coo(m).to_sparse_csc(),
    "edge list": lambda m: (*edge_list(m), NODES),
    "edge list of NumPy": lambda m: (np.stack(m.coords), m.data, NODES),
    "Data with edge_weight": lambda m: data(m, edge_weight=lambda w: w),
    "Data with edge_attr": lambda m: data(m, edge_attr=lambda w: w),
    "Data with a column": lambda m: data(m, edge_attr=lambda w: w[:, None]),
}  # fmt: skip
DIFFERENTIABLE = (
    "torch coo",
    "torch csr",
    "edge list",
    "Data with edge_weight",
    "Data with edge_attr",
    "Data with a column",
)


def curvature(graph: Any, convention: Any, **settings: Any) -> list[np.ndarray]:
    result = ga.ollivier_ricci(graph, convention, **settings)
    assert len(result.to_pandas()) == len(result.kappa)
    assert result.nodes().shape == (NODES,)
    return [result.index, result.kappa, result.w1, result.distance, result.gap, result.status, result.nodes()]


def bounds(graph: Any) -> list[np.ndarray]:
    found = ga.curvature_bounds(graph, "grc-0.6")
    return [found.lower, found.upper]


def forman(graph: Any) -> list[np.ndarray]:
    found = [ga.forman_ricci(graph, kind) for kind in ("plain", "augmented", "balanced")]
    return [array for one in found for array in (one.index, one.kappa, one.nodes())]


def flow(graph: Any) -> list[np.ndarray]:
    found = ga.ricci_flow(graph, "grc-0.6", iterations=2, step=0.5)
    return [found.index, found.lengths, found.kappa, found.nodes()]


FUNCTIONS = {
    "markov": lambda g: curvature(g, "markov"),
    "hop": lambda g: curvature(g, "hop"),
    "grc-0.5": lambda g: curvature(g, "grc-0.5"),
    "grc-0.6": lambda g: curvature(g, "grc-0.6"),
    "Lin-Lu-Yau": lambda g: curvature(g, LIMIT),
    "sample": lambda g: curvature(g, "markov", edges=12, seed=4),
    "bounds": bounds,
    "Forman": forman,
    "flow": flow,
    "communities": lambda g: [ga.ricci_communities(g, choose="modularity", iterations=3).best.labels],
}


@pytest.mark.parametrize("function", list(FUNCTIONS))
@pytest.mark.parametrize("kind", list(INPUTS)[1:])
def test_every_input_with_every_function(kind: str, function: str) -> None:
    matrix = weighted(directed=False)
    expected = FUNCTIONS[function](csr_array(matrix))
    for found, known in zip(FUNCTIONS[function](INPUTS[kind](matrix)), expected, strict=True):
        np.testing.assert_array_equal(found, known)


@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.5", "grc-0.6"])
@pytest.mark.parametrize("kind", list(INPUTS)[1:])
def test_every_input_with_directions(kind: str, preset: str) -> None:
    matrix, convention = weighted(directed=True), ga.Convention.of(preset).but(direction="directed")
    expected = curvature(csr_array(matrix), convention)
    for found, known in zip(curvature(INPUTS[kind](matrix), convention), expected, strict=True):
        np.testing.assert_array_equal(found, known)


@pytest.mark.parametrize("kind", DIFFERENTIABLE)
def test_every_torch_input_has_a_gradient(kind: str) -> None:
    matrix = weighted(directed=False)
    graph = INPUTS[kind](matrix)
    weight = graph if isinstance(graph, torch.Tensor) else graph[1] if isinstance(graph, tuple) else None
    if weight is None:
        weight = graph.edge_weight if graph.edge_weight is not None else graph.edge_attr
    weight.requires_grad_()
    loss = ga.curvature_loss(graph, "grc-0.6")
    loss.backward()
    plain = (torch.tensor(np.stack(matrix.coords)).long(), torch.tensor(matrix.data).requires_grad_(), NODES)
    ga.curvature_loss(plain, "grc-0.6").backward()
    expected = torch.sparse_coo_tensor(plain[0], plain[1].grad, (NODES, NODES), check_invariants=True).to_dense()
    found = weight.grad
    if not isinstance(graph, torch.Tensor):
        index = graph[0] if isinstance(graph, tuple) else graph.edge_index
        found = torch.sparse_coo_tensor(index, found.reshape(-1), (NODES, NODES), check_invariants=True)
    torch.testing.assert_close(found.to_dense(), expected, rtol=1e-12, atol=1e-12)
    assert float(loss.detach()) == pytest.approx(ga.ollivier_ricci(matrix, "grc-0.6").values().mean(), abs=1e-14)


@pytest.mark.parametrize("kind", ["csr array", "networkx", "edge list of NumPy"])
def test_no_gradient_without_torch(kind: str) -> None:
    with pytest.raises(ga.GeoattnError, match="to differentiate give"):
        ga.curvature_loss(INPUTS[kind](weighted(directed=False)), "grc-0.6")


def test_the_error_for_a_networkx_graph_has_a_way_that_works_and_no_type_of_missing_weights() -> None:
    graph = nx.karate_club_graph()
    with pytest.raises(ga.GeoattnError, match=r"got Graph\. Of a networkx graph: (.*)\.$") as refused:
        ga.curvature_loss(graph, "hop")
    tensor = eval(str(refused.value).split("graph: ")[1].rstrip("."), {"torch": torch, "networkx": nx, "graph": graph})
    expected = ga.ollivier_ricci(graph, "hop").values().mean()
    assert float(ga.curvature_loss(tensor, "hop")) == pytest.approx(expected, abs=1e-12)
    index = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ga.GeoattnError, match="got tuple without weights"):
        ga.curvature_loss((index, None, 2), "hop")


def test_no_gradient_of_a_layout_that_torch_cannot_differentiate() -> None:
    graph = torch_coo(weighted(directed=False)).to_sparse_csc().requires_grad_()
    with pytest.raises(ga.GeoattnError, match="layout sparse_coo or sparse_csr; got"):
        ga.curvature_loss(graph, "grc-0.6")


def test_annotated_by_the_names_of_the_nodes() -> None:
    graph = named(weighted(directed=False))
    result = ga.ollivier_ricci(graph, "grc-0.6")
    assert result.annotate(graph, "ricciCurvature") is graph
    for (u, v), kappa in result.to_dict().items():
        assert graph[u][v]["ricciCurvature"] == kappa
    for name, mean in zip(graph.nodes, result.nodes(), strict=True):
        assert graph.nodes[name]["ricciCurvature"] == mean
    table = result.to_pandas()
    assert (table["source"].str.startswith("node ") & table["target"].str.startswith("node ")).all()
