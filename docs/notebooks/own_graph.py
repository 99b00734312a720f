# %% [markdown]
# # The curvature of your own graph
#
# Curvature is not only for attention. This notebook takes a network from networkx, finds its bridges, and cuts it into
# communities by Ricci flow. It uses what comes with geoattn.

# %%
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import geoattn as ga

karate = nx.karate_club_graph()
nx.set_edge_attributes(karate, 1.0, "weight")  # who knows whom; the weights are the subject of a section below
result = ga.ollivier_ricci(karate, "grc-0.6")
kappa = result.to_dict()

place = nx.spring_layout(karate, seed=3)
limit = 0.5  # full colour
figure, ax = plt.subplots(figsize=(7.5, 4.6))
lines = nx.draw_networkx_edges(
    karate,
    place,
    edgelist=list(kappa),
    edge_color=list(kappa.values()),
    edge_cmap=plt.get_cmap("coolwarm_r"),
    edge_vmin=-limit,
    edge_vmax=limit,
    width=2,
    ax=ax,
)
club = ["#333333" if karate.nodes[node]["club"] == "Mr. Hi" else "#bbbbbb" for node in karate]
nx.draw_networkx_nodes(karate, place, node_size=160, node_color=club, edgecolors="#333333", ax=ax)
ax.axis("off")
figure.colorbar(lines, ax=ax, label="curvature")

# %% [markdown]
# The members of a karate club, dark and light by the side that they took when the club broke up. Blue edges lie inside
# a group: their ends have the same friends. Red edges are bridges: what one end knows, the other end does not.
#
# ## The edges

# %%
result.to_pandas().sort_values("kappa")[["source", "target", "kappa", "w1", "distance", "gap"]].head(5).round(4)

# %% [markdown]
# Each value has a duality gap, which proves how near it is to the optimum. `result.annotate(karate)` writes the values
# onto the edges of the graph, as other tools expect them.

# %%
result.annotate(karate, "ricciCurvature")
print(karate.edges[0, 31])

# %% [markdown]
# ## Communities
#
# Ricci flow makes negative edges longer and positive ones shorter. After some steps the long edges are cut, and what
# remains connected is a community.

# %%
found = ga.ricci_communities(karate, convention="grc-0.6", iterations=15)
groups = found.best.by_node()
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
left.plot(found.cutoffs, found.modularity)
left.axvline(found.best.cutoff, color="#b84300", linestyle=":")
left.set(xlabel="cutoff", ylabel="modularity")
nx.draw_networkx(
    karate,
    place,
    node_color=[groups[node] for node in karate],
    cmap="tab10",
    node_size=160,
    font_size=7,
    font_color="white",
    edge_color="#bbbbbb",
    ax=right,
)
right.axis("off")
print(found.best.groups())

# %%
side = np.array([karate.nodes[node]["club"] == "Mr. Hi" for node in karate])
for group in found.best.groups():
    print(f"{len(group):2} members, {side[group].mean():.0%} with Mr. Hi")

# %% [markdown]
# ## What a weight means
#
# The data set counts what two members do together, so a large weight means *near*. The presets `grc-0.6` and `grc-0.5`
# read a weight as a length, where a large one means *far*. Under `markov` weights are similarities. Choose before you
# read the signs.

# %%
weighted = nx.karate_club_graph()
for convention in ("markov", "hop", "grc-0.6"):
    values = ga.ollivier_ricci(weighted, convention).summary()
    print(f"{convention:8} mean {values['mean']:+.3f}, negative edges {values['negative_share']:.0%}")

# %% [markdown]
# ## Larger graphs
#
# A SciPy sparse matrix, an edge list of PyTorch Geometric and a file work as well. Time follows the edges and their
# degrees.

# %%
ring = nx.connected_caveman_graph(40, 12)
curved = ga.ollivier_ricci(ring, "hop")
figure, ax = plt.subplots(figsize=(6, 2.8))
ax.hist(list(curved.to_dict().values()), bins=40, color="#0a5aa8")
ax.set(xlabel="curvature", ylabel="edges", title="40 cliques in a ring: bridges are negative")
print(curved)

# %% [markdown]
# ## What to try next
#
# - `geoattn curvature graph.graphml` does the same on the command line, for .graphml, .gml, .mtx and edge lists.
# - `from geoattn.compat import OllivierRicci` replaces the import of GraphRicciCurvature and keeps your code.
# - `ga.forman_ricci` and `ga.curvature_bounds` cost less and need no transport.
