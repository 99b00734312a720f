# %% [markdown]
# # Sinks and bottlenecks of a language model
#
# Many heads of a language model put most of their weight on the first token. Such a token is called a sink. This
# notebook shows where the sinks of SmolLM2-135M are, what they do to curvature, and which heads have real bottlenecks.
# The model is a folder: `hf download HuggingFaceTB/SmolLM2-135M --local-dir models/smollm2-135m`.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import geoattn as ga

texts = [
    "The lighthouse keeper wrote to his sister every week, but the boat that should carry it came only in spring.",
    "To find the largest prime below one hundred, test ninety-nine and ninety-seven; the last one has no divisor.",
    "She asked whether the budget, which had been approved in March, still covered the repairs of the bridge.",
    "Water boils at a lower temperature on a mountain because the pressure of the air decreases with height.",
]
model = ga.load_model(Path(os.environ.get("GEOATTN_MODELS", "models")) / "smollm2-135m")
profile = ga.profile(model, texts)
table = profile.heads()

figure, panels = plt.subplots(1, 2, figsize=(9, 6), layout="constrained")
for ax, name, title in zip(
    panels, ["first_token", "negative_depth"], ["weight on the first token", "depth of negative edges"], strict=True
):
    grid = table.pivot(index="layer", columns="head", values=name)
    image = ax.imshow(grid, cmap="cividis", aspect="auto")
    ax.set(title=title, xlabel="head", ylabel="layer")
    figure.colorbar(image, ax=ax)

# %% [markdown]
# The left panel is the map of the sinks. A bright cell is a head whose rows look at the first token and at little else.
# The right panel shows how far below 0 the negative edges of a head are on average.
#
# ## How many heads are sinks?

# %%
sinks = table[table["first_token"] > 0.5]
print(f"{len(sinks)} of {len(table)} heads put more than half of their weight on the first token")
table.groupby(
    pd.cut(table["layer"], [-1, 4, 14, 24, 29], labels=["0 to 4", "5 to 14", "15 to 24", "25 to 29"]), observed=True
)[["first_token", "distance_to_one", "negative_share", "negative_depth"]].mean().round(3)

# %% [markdown]
# ## A sink makes a head look curved
#
# Two tokens that both look at the sink attend to the same place. Little mass has to move between their rows, so the
# curvature of their edge is close to 1. The picture has one point a head.

# %%
figure, ax = plt.subplots(figsize=(5.5, 3.8))
ga.plots.relation(profile, "first_token", ax=ax)
found = ga.statistics.rank_correlation(table["first_token"].to_numpy(), table["distance_to_one"].to_numpy())
ax.set_title(f"rank correlation {found.correlation:.2f}".replace("-", "−"), fontsize=10)

# %% [markdown]
# A high curvature of such a head says that the head rests, and nothing about what the words have to do with each other.
# So look at the heads that are no sinks, or take the sink out of the graph.
#
# ## Bottlenecks without the sink
#
# `special=1` says that the first token is no content. It leaves the graph, and the rows are divided by the weight that
# remains.

# %%
content = ga.profile(model, texts, tokens="content", special=1)
heads = content.heads().merge(table[["layer", "head", "first_token"]], on=["layer", "head"], suffixes=("", "_all"))
bottlenecks = heads[heads["negative_share"] > 0.1].sort_values("negative_depth", ascending=False)
bottlenecks[["layer", "head", "distance_to_one", "negative_share", "negative_depth", "first_token_all"]].head(6).round(
    3
)

# %%
layer, head = (int(bottlenecks.iloc[0][name]) for name in ("layer", "head"))
figure, ax = plt.subplots(figsize=(9.5, 3.6))
ga.plots.attention_graph(content.examples[0], layer, head, ax=ax)
ax.set_title(f"layer {layer}, head {head}, without the first token")

# %% [markdown]
# ## What to do with a bottleneck head
#
# 1. Look at its edges with `content.edges(0, layer, head, tokens=True)`. Edges between one word and the next, or
#    between a word and its last comma, are a pattern with a name.
# 2. Check that the head has the same place under other conventions: `rank_spread` of a profile with several conventions
#    is small.
# 3. Switch the head off and see what the model loses. A head that can go without a loss is a place to save, one that
#    cannot is a place to protect.
#
# ## What to try next
#
# - Measure texts of 512 tokens: `ga.profile(model, texts, minutes=5)` draws edges and says which precision it reached.
# - Compare the base model with its chat version on the same texts: `profile.compare(other)`.
# - `profile.view()` shows all 270 heads, with the graph of the head that you click.
