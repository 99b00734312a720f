# %% [markdown]
# # A text model: from sentences to a figure for a paper
#
# This notebook takes a sentence encoder and some sentences, finds the heads that stand apart, looks at one of them, and
# ends with a figure that can be printed. It needs two folders: the model (`hf download
# sentence-transformers/all-MiniLM-L6-v2 --local-dir models/minilm`) and SST-2 in the folder that `GEOATTN_DATA` names
# (`hf download nyu-mll/glue --repo-type dataset --include "sst2/*" --local-dir data`). Any list of sentences works in
# its place.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt

import geoattn as ga

model = ga.load_model(Path(os.environ.get("GEOATTN_MODELS", "models")) / "minilm")
sentences = list(ga.load_data("sst2", split="test", limit=24).texts)
presets = ["markov", "hop", "grc-0.6", "grc-0.5"]
profile = ga.profile(model, sentences, convention=presets, tokens="content")

figure, ax = plt.subplots(figsize=(7.5, 4.2))
ga.plots.heads(profile, ax=ax)
ax.set_title("distance to one, MiniLM on SST-2")

# %% [markdown]
# The distance to one of a head is the mean of 1 − κ over its edges: 0 when all tokens attend to the same places, above
# 1 when its edges are bottlenecks. `tokens="content"` takes the tokens `[CLS]` and `[SEP]` out of the graph, because
# they attract most of the attention and belong to no sentence.
#
# ## Which heads
#
# `heads()` has one row a head. `negative_depth` says how deep the negative edges are, and `rank_spread` says how much
# the rank of the head depends on the convention.

# %%
table = profile.heads()
columns = [
    "layer",
    "head",
    "distance_to_one",
    "negative_share",
    "negative_depth",
    "heaviest_token",
    "rank_markov",
    "rank_spread",
]
table.sort_values("distance_to_one", ascending=False)[columns].head(6).round(3)

# %% [markdown]
# The first row is the head that is farthest from one under `markov`. Its `rank_spread` is nearly the number of heads:
# another convention puts it last, so a paper should name the convention beside the finding. The second row has more
# negative edges, but they are hardly below 0: this head is flat and no bottleneck.
#
# ## One head on one sentence

# %%
first = table.sort_values("distance_to_one", ascending=False).iloc[0]
layer, head = int(first["layer"]), int(first["head"])
figure, ax = plt.subplots(figsize=(9, 3.6))
ga.plots.attention_graph(profile.examples[0], layer, head, ax=ax)
ax.set_title(f"layer {layer}, head {head}")

# %%
profile.edges(0, layer, head, tokens=True).sort_values("kappa").head(5).round(3)

# %% [markdown]
# The width of an edge is its weight, and its colour is its curvature: blue above 0, orange below. The table lists the
# lowest edges with the texts of their tokens. This head looks at the neighbours of a word, so that its graph is a
# chain, and a chain has no positive curvature: the two ends of an edge look in opposite directions.
#
# ## The figure
#
# Each function of `ga.plots` takes `ax=`, so that panels can be combined. Fonts of 8 points suit a column of most
# journals.

# %%
plt.rcParams["font.size"] = 8
figure, (left, right) = plt.subplots(1, 2, figsize=(6.8, 2.8), layout="constrained")
ga.plots.layers(profile, ax=left)
ga.plots.conventions(profile, ax=right)
left.set_title("markov", loc="left")
right.set_title("all presets", loc="left")
figure.savefig("minilm.pdf")

# %% [markdown]
# ## The numbers of the caption
#
# Every mean has an interval over sentences. The settings say how the numbers were made, and `geoattn cite curvature`
# prints what to cite.

# %%
value, low, high = profile.value("distance_to_one")
print(
    f"distance to one {value:.3f} [{low:.3f}, {high:.3f}], 95 % bootstrap over {profile.settings['samples']} sentences,"
)
convention, tokens = profile.conventions[0].name, profile.settings["tokens"]
print(f"{profile.settings['values']:,} values, convention {convention}, tokens: {tokens}")

# %% [markdown]
# ## What to try next
#
# - `profile.view()` shows the heat map and the graphs of all heads in the notebook; `profile.report("report.html")`
#   writes the whole page.
# - Give your own sentences as a list, a DataFrame with `column="text"`, or a file.
# - Measure a second model on the same sentences, and compare the two with `profile.compare(other)`.
