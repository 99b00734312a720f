# %% [markdown]
# # Does curvature predict errors?
#
# When a model is wrong, is its attention shaped differently? This notebook asks it of the embedded vision transformer
# on noisy digits. It trains a detector of errors on the geometry of attention, and compares it with the confidence of
# the model itself. It uses what comes with geoattn.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import geoattn as ga

model, test = ga.load_model("lvit-digits"), ga.load_data("digits", split="test")
clean, labels = test.pixels(), np.asarray(test.labels)
draws = 3  # noisy versions of each image
noise = torch.randn(draws * len(clean), *clean.shape[1:], generator=torch.Generator().manual_seed(0))
noisy = clean.repeat(draws, 1, 1, 1) + 0.35 * clean.std() * noise
group = np.tile(np.arange(len(clean)), draws)  # the image behind each version
with torch.no_grad():
    logits = model(noisy)
wrong = logits.argmax(-1).numpy() != labels[group]
print(f"{wrong.sum()} errors on {len(wrong)} noisy images")

features = ga.features(model, [noisy])
kinds = {
    "curvature": [name for name in features if ".curvature." in name],
    "eigenvalues": [name for name in features if ".spectrum." in name or ".laplacian." in name],
    "weights": [name for name in features if ".weights." in name or ".sinks." in name],
}
folds = StratifiedGroupKFold(5, shuffle=True, random_state=0)
detector = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=2000))
confidence = torch.softmax(logits, -1).amax(-1).numpy()
margin = np.sort(logits.numpy(), axis=1)[:, -1] - np.sort(logits.numpy(), axis=1)[:, -2]
tables = {name: features[columns] for name, columns in kinds.items()}
tables["confidence"] = pd.DataFrame({"confidence": confidence, "margin": margin})
tables["confidence and curvature"] = pd.concat([tables["confidence"], tables["curvature"]], axis=1)
scores = {
    name: cross_val_predict(detector, table, wrong, groups=group, cv=folds, method="predict_proba")[:, 1]
    for name, table in tables.items()
}
rng = np.random.default_rng(0)
resampled = [
    np.concatenate([chosen + k * len(clean) for k in range(draws)])
    for chosen in rng.integers(len(clean), size=(500, len(clean)))
]  # a bootstrap over images, with all their versions


def interval(score):
    """The area under the ROC curve, with a bootstrap interval over images."""
    areas = [roc_auc_score(wrong[rows], score[rows]) for rows in resampled]
    return roc_auc_score(wrong, score), *np.quantile(areas, [0.025, 0.975])


areas = pd.DataFrame({name: interval(score) for name, score in scores.items()}, index=["area", "low", "high"]).T
figure, ax = plt.subplots(figsize=(6.5, 2.8))
places = np.arange(len(areas))
ax.errorbar(
    areas["area"], places, xerr=[areas["area"] - areas["low"], areas["high"] - areas["area"]], fmt="o", capsize=3
)
ax.axvline(0.5, color="#999999", linestyle=":")
ax.set_yticks(places, areas.index)
ax.invert_yaxis()
ax.set_xlabel("area under the ROC curve, cross-validated")

# %% [markdown]
# An area of 0.5 is chance, and 1 is a perfect detector. The points are cross-validated: each image is judged by a
# detector that has seen none of its versions. The detectors are linear, and each gets the same penalty.

# %%
areas.round(3)

# %% [markdown]
# ## What the answer is worth
#
# Curvature predicts errors better than chance. The confidence of the model is the baseline that counts, because it is
# free, and it is far better. Geometry is useful where it adds to it, so compare the last two rows.

# %%
both, alone = scores["confidence and curvature"], scores["confidence"]
gains = [roc_auc_score(wrong[rows], both[rows]) - roc_auc_score(wrong[rows], alone[rows]) for rows in resampled]
low, high = np.quantile(gains, [0.025, 0.975])
print(f"gain over confidence {np.mean(gains):+.3f} [{low:+.3f}, {high:+.3f}]")

# %% [markdown]
# The interval of the gain contains 0: on this model and this noise, curvature adds nothing that can be seen. The
# intervals are over images of one model. Another model, another kind of noise or another data set may answer otherwise.
#
# ## Which layer knows it?
#
# The columns of `ga.features` are named by layer, head, lens and statistic. One number of each layer shows where wrong
# images differ.

# %%
names = [f"L{layer:02d}.H0.curvature.distance_to_one" for layer in range(8)]
single = [roc_auc_score(wrong, features[name]) for name in names]
figure, ax = plt.subplots(figsize=(6.5, 3))
ax.bar(range(8), np.array(single) - 0.5, bottom=0.5, color="#0a5aa8")
ax.axhline(0.5, color="#999999", linewidth=0.8)
ax.set(xlabel="layer", ylabel="area of the distance to one", ylim=(0.2, 0.8))

# %% [markdown]
# A bar above 0.5 means that attention of wrong images is farther from one in that layer, a bar below means that it is
# nearer.
#
# ## What to try next
#
# - Use your own classifier and data: `ga.features(model, texts)` takes any form that `ga.profile` takes.
# - `ga.AttentionGeometry(model)` is the same as a step of a scikit-learn pipeline.
# - Add the column `tokens` as a control when samples differ in length: long texts may simply be harder.
