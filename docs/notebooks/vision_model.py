# %% [markdown]
# # A vision model: the geometry of a photograph
#
# A vision transformer cuts a picture into patches, and patches attend to patches. This notebook draws the curvature of
# that graph on the photograph, layer by layer. The photographs come with scikit-learn. The model is a folder: `hf
# download facebook/dinov2-small --local-dir models/dinov2-small`.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_sample_images

import geoattn as ga

photos = np.stack([photo[:420, 100:520] for photo in load_sample_images().images])  # squares of two photographs
pixels = torch.from_numpy(photos).permute(0, 3, 1, 2) / 255
pixels = torch.nn.functional.interpolate(pixels, size=(168, 168), mode="bilinear", antialias=True)
mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
batch = {"pixel_values": (pixels - mean[:, None, None]) / std[:, None, None]}

model = ga.load_model(Path(os.environ.get("GEOATTN_MODELS", "models")) / "dinov2-small")
with ga.capture(model) as record, torch.no_grad():
    model(**batch)


def by_patch(layer):
    """Mean curvature of the edges of each patch, over heads; the first token is the class token."""
    kappa = ga.ollivier_ricci(record[layer]).kappa
    return np.nanmean(kappa, axis=(1, 3))[:, 1:].reshape(len(photos), 12, 12)


chosen = [0, 5, 11]
patches = {layer: by_patch(layer) for layer in chosen}
figure, panels = plt.subplots(2, 4, figsize=(10, 5.2), layout="constrained")
for row, photo in zip(panels, range(2), strict=True):
    row[0].imshow(photos[photo])
    row[0].set_title("photograph" if photo == 0 else "")
    for ax, layer in zip(row[1:], chosen, strict=True):
        image = ax.imshow(patches[layer][photo], cmap="cividis", vmin=0.2, vmax=0.8)
        ax.set_title(f"layer {layer}" if photo == 0 else "")
figure.colorbar(image, ax=panels, shrink=0.7, label="mean curvature of the edges of a patch")
for ax in panels.flat:
    ax.axis("off")

# %% [markdown]
# A bright patch attends to the same places as the others do. A dark patch stands apart: what it attends to is far from
# what the other patches attend to. The model was never told what is a flower, and yet its patches have another
# curvature than the background. All edges of 36 maps of 145 tokens were solved exactly for this picture.
#
# ## Layer by layer
#
# `ga.profile` measures all layers and heads. Of maps with more than 65 tokens it draws edges until the interval of each
# head is narrow.

# %%
profile = ga.profile(model, [batch])
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
ga.plots.layers(profile, ax=left)
ga.plots.heads(profile, ax=right)

# %% [markdown]
# ## Does a patch collect the attention?
#
# Large vision transformers without registers store what they need in a few patches of the background, and many heads
# look at them. Then the weight on the heaviest token is far above that on the class token, which is the first one. In
# this small model the two are nearly the same in most layers: the class token is the heaviest one, and no patch has
# taken its role.

# %%
table = profile.heads()
table.groupby("layer")[
    ["first_token", "heaviest_token", "row_entropy", "distance_to_one", "negative_share"]
].mean().round(3)

# %%
received = (
    record[11].attention().mean(dim=(1, 2))[:, 1:].reshape(2, 12, 12)
)  # what each patch gets, over heads and rows
figure, panels = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
for ax, values in zip(panels, received, strict=True):
    ax.imshow(values, cmap="cividis")
    ax.axis("off")
figure.suptitle("attention that each patch of the last layer gets")

# %% [markdown]
# ## What to try next
#
# - Give a folder of photographs: `ga.profile(model, "photos/")` resizes and normalises them by the model's own
#   processor.
# - Take the class token and the registers out of the graph with `tokens="content"`.
# - Compare a model with registers to one without: `profile.compare(other)`.
