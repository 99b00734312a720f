# %% [markdown]
# # Choose a convention
#
# One attention map has many curvatures, because a convention decides how the map becomes a graph. This notebook shows
# the same model under the four presets, and how to see whether a finding depends on the choice. It uses what comes with
# geoattn.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

import geoattn as ga

warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)  # explained below
presets = ["markov", "hop", "grc-0.6", "grc-0.5"]
model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=64)
profile = ga.profile(model, digits, convention=presets)

figure, panels = plt.subplots(1, 4, figsize=(11, 3.6), layout="constrained", sharey=True)
for ax, preset in zip(panels, presets, strict=True):
    ga.plots.ridges(profile, convention=preset, ax=ax)
    ax.set_title(preset)

# %% [markdown]
# Each panel shows the distribution of curvature in the eight layers of the same model on the same images. Under
# `markov` and `hop` the layers differ. Under `grc-0.6` all of them gather at one value.
#
# ## What each preset asks
#
# Curvature is κ(x, y) = 1 − W₁(mₓ, m_y) / D(x, y). A convention says what a token's measure m is, and how long an edge
# is.
#
# | preset | measure of a token | length of an edge | in words |
# | --- | --- | --- | --- |
# | `markov` | its attention row | −log weight | Do two tokens look at the same tokens, along likely paths? |
# | `hop` | its attention row | 1 | The same without lengths: one minus the total variation. |
# | `grc-0.6` | half on the token, the rest spread | weight | What GraphRicciCurvature 0.6.1 computes. |
# | `grc-0.5` | the same | weight, and D is that length | What its versions up to 0.5.3.2 compute. |
#
# ## Does the trend depend on it?

# %%
figure, ax = plt.subplots(figsize=(6.5, 3.6))
ga.plots.conventions(profile, ax=ax)

# %%
rows = []
for preset in presets:
    first, last = (profile.value("distance_to_one", layer=k, convention=preset)[0] for k in (0, 7))
    rows.append(f"{preset:8} first layer {first:.3f}, last layer {last:.3f}: {'falls' if last < first else 'rises'}")
print("\n".join(rows))

# %% [markdown]
# A sentence such as "curvature rises with depth" needs the name of its convention. The report tests each of its
# findings under all presets and says beside it where the sign changes. `heads()` has the rank of each head under each
# of them.

# %%
table = profile.heads()
table[["layer", "head", *(f"rank_{preset}" for preset in presets), "rank_spread"]].round(3)

# %% [markdown]
# ## Why the grc presets are nearly constant
#
# Their measure is proportional to exp(−S²), and attention weights S are small, so all neighbours get nearly the same
# mass. Curvature is then about ½ + ½ / (n − 1), whatever the attention is. geoattn warns of it, and the summary says
# why.

# %%
n = 65
weights = np.exp(np.random.default_rng(0).standard_normal((n, n)))
result = ga.ollivier_ricci(weights / weights.sum(-1, keepdims=True), "grc-0.6")
print(f"mean {result.summary()['mean']:.4f}, predicted {0.5 + 0.5 / (n - 1):.4f}")
print(result.summary()["degenerate"])

# %% [markdown]
# ## Sharper attention
#
# The picture shows random attention of 17 tokens whose logits are multiplied by a factor. A larger factor means sharper
# rows and more variance of the weights.

# %%
logits = np.random.default_rng(0).standard_normal((16, 17, 17))
scales = [0.5, 1, 2, 3, 4, 6]
figure, ax = plt.subplots(figsize=(6.5, 3.6))
for preset in presets:
    means = []
    for scale in scales:
        weights = np.exp(scale * logits)
        means.append(ga.ollivier_ricci(weights / weights.sum(-1, keepdims=True), preset).summary()["mean"])
    ax.plot(scales, means, marker="o", markersize=4, label=preset)
ax.set(xlabel="factor of the logits", ylabel="mean curvature")
ax.legend(frameon=False)

# %% [markdown]
# Under `grc-0.5` curvature rises with sharpness, and under `markov` and `hop` it falls. The claim "more variance, lower
# curvature" thus depends on the version of a library.
#
# ## Which one to take
#
# - Take `markov` for the Markov chain that attention is. It separates trees, grids and cliques as geometry does.
# - Take `hop` when the number should be easy to explain.
# - Take a grc preset to repeat a paper that used that library.
# - Report what you find under at least `markov` and `hop`, and say where they disagree.
#
# ## What to try next
#
# - Change one part: `ga.Convention.of("markov").but(alpha=0.5)` keeps half of the mass on the token.
# - Profile your own model with `convention=presets`, and sort `heads()` by `rank_spread`.
