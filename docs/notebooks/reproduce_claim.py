# %% [markdown]
# # Reproduce a claim of a paper
#
# Appendix C of the Ricci paper says that more variance of the attention weights goes with lower curvature. This
# notebook runs the study of that claim again, looks at the verdicts, and checks that the stored table follows from the
# stored trials. It uses what comes with geoattn.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import geoattn as ga

study = ga.studies.find_study("appendix-c")
folder = Path(tempfile.mkdtemp())
findings = ga.studies.run_study(study, "small", folder)

figure, ax = plt.subplots(figsize=(9, 5))
ax.imshow(plt.imread(folder / "appendix-c.png"))
ax.axis("off")

# %% [markdown]
# A study is a list of trials, a table, a figure and a verdict. This one takes attention maps in several strengths of
# their logits, and asks whether curvature falls when the variance of the weights rises. The size `small` has 80 trials
# and is the one on the claims page. The size `smoke` takes seconds and shows that everything works.
#
# ## The verdicts
#
# `difference` is the effect with its 95 % interval over maps. A claim is *replicated* when the interval lies on the
# claimed side of 0, *contradicted* when it lies on the other side, and *not replicated* when it contains 0.

# %%
table = pd.DataFrame([vars(finding) for finding in findings])
shown = table[["data", "convention", "measure", "difference", "low", "high", "trials", "verdict"]]
shown[shown["measure"].str.startswith("mean curvature")].round(3)

# %% [markdown]
# The verdict of one claim differs between conventions. The paper used a library whose versions differ in the
# denominator of curvature, so its name belongs to the claim.

# %%
about_variance = table[table["claim"].str.contains("variance")]
pd.crosstab(about_variance["convention"], about_variance["verdict"])

# %% [markdown]
# ## By hand
#
# A claim that matters can be checked without the study. The study changes the variance of a map and keeps the rest. Do
# maps of one model that differ in variance differ in curvature, too?

# %%
attention = ga.datasets.load_sample()  # layers, images, heads, tokens, tokens
variance = attention.var(axis=(-1, -2)).ravel()
curvature = {
    convention: 1
    - ga.ollivier_ricci(attention, convention)
    .to_pandas()
    .groupby(["layer", "sample", "head"])["kappa"]
    .mean()
    .to_numpy()
    for convention in ("markov", "hop")
}
figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, (convention, distance) in zip(panels, curvature.items(), strict=True):
    found = ga.statistics.rank_correlation(variance, distance)
    ax.plot(variance, distance, "o", markersize=3, alpha=0.6)
    ax.set(
        xlabel="variance of the weights",
        ylabel="distance to one",
        title=f"{convention}: rank correlation {found.correlation:.2f}".replace("-", "−"),
    )

# %% [markdown]
# Across the maps of this model the association is weaker than within a map, because heads differ in more than their
# variance. A claim about what a change does is not a claim about what goes together.
#
# ## The folder of a study
#
# The folder is the store: a run that was cut short goes on from there, and `verify` derives the table from the stored
# trials again. The same command on the command line is `geoattn study appendix-c --size small --out results`.

# %%
print(*sorted(path.name for path in folder.iterdir()), sep="\n")

# %% [markdown]
# ## What to try next
#
# - `geoattn study --list` names all studies, with the tables and figures that they repeat.
# - `geoattn study appendix-c verify --out results --redo 5` does five of the trials again and compares.
# - The claims page lists every claim with its endpoint, its verdict and its interval.
