# %% [markdown]
# # Clusters on the sphere
#
# Attention with layer normalisation moves tokens on a sphere, each towards those that it attends to. In the end all
# tokens meet, but on the way they rest in clusters for a long time. This notebook follows them. It uses what comes with
# geoattn.

# %%
import matplotlib.pyplot as plt
import torch

import geoattn as ga

start = ga.dynamics.uniform_tokens(200, 3, seed=1)
times = torch.tensor([0.0, 2.0, 8.0, 30.0], dtype=torch.float64)
run = ga.simulate(start, beta=9.0, until=30.0, save=times)

figure, panels = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
for k, ax in enumerate(panels):
    ga.plots.sphere(run, k, ax=ax)
    ax.set_title(f"time {times[k]:g}: {int(run.clusters()[k])} clusters")

# %% [markdown]
# Two hundred uniform tokens at β = 9 gather in a few clusters within some units of time. Then they hardly move: the
# state is metastable. Time plays the role of depth, and β that of the scale of the logits.
#
# ## The energy climbs in steps
#
# With equal queries, keys and values the flow climbs an energy. Plateaus are the metastable states, and a step is a
# merger of two clusters.

# %%
longer = ga.simulate(ga.dynamics.uniform_tokens(60, 3, seed=2), beta=9.0, until=200.0, save=400, method="adaptive")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
ga.plots.energy(longer, ax=left)
right.plot(longer.t, longer.clusters(), drawstyle="steps-post")
right.set(xlabel="time", ylabel="number of clusters")
print(longer)
print(f"largest error of the balance of energy: {float(longer.balance.max()):.1e}")

# %% [markdown]
# The balance is the certificate of a run: the energy that was gained must equal the work that the flow did.
#
# ## How many clusters, by β

# %%
betas = [1.0, 2.0, 4.0, 9.0, 16.0, 25.0]
counts = []
for beta in betas:
    runs = ga.simulate(ga.dynamics.uniform_tokens(4 * 100, 3, seed=5).reshape(4, 100, 3), beta=beta, until=10.0, save=2)
    counts.append(runs.clusters()[-1].double().mean().item())
figure, ax = plt.subplots(figsize=(5.5, 3.2))
ax.plot(betas, counts, "o-")
ax.set(xlabel="β", ylabel="clusters at time 10, mean of 4 runs")

# %% [markdown]
# Sharper attention looks less far, so that more clusters survive for longer.
#
# ## The phase diagram
#
# In high dimension the time at which tokens meet has a closed form. The white curve is that theory, the colours are
# runs.

# %%
diagram = ga.dynamics.phase_diagram([0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0], [64], n=16, runs=4, until=12.0)
figure, ax = plt.subplots(figsize=(5.5, 3.4))
ga.plots.phase(diagram, ax=ax)

# %% [markdown]
# ## And a real model?
#
# `ga.profiles.model_flow` puts the tokens of each layer of a model beside the flow that starts at its first layer.

# %%
flow = ga.profiles.model_flow(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
ga.plots.token_flow(flow, ax=left)
ga.plots.sphere(flow, ax=right)
right.set_title("tokens of the last layer")

# %% [markdown]
# The tokens of the model come a little closer in the last layers only, while those of the flow meet: other weights, the
# residual stream and the MLPs keep them apart.
#
# ## What to try next
#
# - `run.view()` is an interactive sphere with a slider over time; `ga.dynamics.animate` writes a film.
# - `causal=True`, `flow="sinkhorn"` or `V=-1.0` change the flow; the page "Tokens as particles" lists the kinds.
# - `geoattn simulate --list` has experiments with a known outcome.
