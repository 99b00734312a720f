# %% [markdown]
# # Train with a regulariser
#
# A regulariser adds a term to the loss that moves the geometry of attention. This notebook trains the same small vision
# transformer three times, without a regulariser, with more and with less variance of the attention weights, and watches
# curvature. It takes about a minute on one core and uses what comes with geoattn.

# %%
import matplotlib.pyplot as plt
import pandas as pd
import torch

import geoattn as ga

train, test = ga.load_data("digits", split="train"), ga.load_data("digits", split="test")
images, labels = train.pixels(), torch.tensor(train.labels)


def run(direction=None, epochs=10):
    """Train a small model in a plain loop; a row of figures for every tenth step."""
    torch.manual_seed(0)
    model = ga.load_model("lvit-mnist", weights="random", image_size=8, patch_size=2).train()
    adam = torch.optim.Adam(model.parameters(), lr=5e-4)
    regulariser = ga.VarianceRegulariser(direction, strength=0.3).attach(model) if direction else None
    monitor = ga.Monitor(every=10).attach(model)
    rows, step = [], 0
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            adam.zero_grad()
            task = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss = task + regulariser.penalty(task) if regulariser else task
            loss.backward()
            if figures := monitor.observe(loss):
                rows.append({"step": step, "task": task.item(), **{k: v for k, v in figures.items() if "/" not in k}})
            adam.step()
            step += 1
    if regulariser:
        regulariser.remove()
    monitor.remove()
    with torch.no_grad():
        right = model.eval()(test.pixels()).argmax(-1) == torch.tensor(test.labels)
    return model, pd.DataFrame(rows), right.float().mean().item()


runs = {
    name: run(direction)
    for name, direction in [("plain", None), ("more variance", "increase"), ("less variance", "decrease")]
}

figure, panels = plt.subplots(1, 3, figsize=(10.5, 3.2), layout="constrained")
for ax, what in zip(panels, ["task", "variance", "curvature"], strict=True):
    for name, (_, log, _) in runs.items():
        ax.plot(log["step"], log[what], label=name)
    ax.set(
        xlabel="step",
        title={"task": "loss of the task", "variance": "variance of attention", "curvature": "mean curvature"}[what],
    )
panels[1].set_yscale("log")
panels[0].legend(frameon=False)

# %% [markdown]
# The regulariser moves the variance of attention in both directions, and curvature follows: more variance, lower
# curvature. The loss of the task hardly differs.

# %%
pd.DataFrame(
    {
        name: {"test accuracy": accuracy, **log.iloc[-1][["task", "variance", "curvature"]]}
        for name, (_, log, accuracy) in runs.items()
    }
).T.round(4)

# %% [markdown]
# ## The call
#
# Three lines of the loop belong to geoattn.
#
#     regulariser = ga.VarianceRegulariser("increase", strength=0.3).attach(model)
#     loss = task + regulariser.penalty(task)
#     regulariser.remove()
#
# `strength=0.3` asks for a gradient of the penalty that is three tenths of that of the task, in the attention modules.
# The first 200 steps set gamma accordingly, so that no constant has to be guessed. `ga.Monitor(every=10)` measures
# every tenth step and changes nothing.
#
# ## The attention before and after
#
# `ga.profile` measures the trained models exactly: all edges of all maps, with an interval over images.

# %%
shown = ga.load_data("digits", split="test", limit=64)
profiles = {name: ga.profile(model, shown, name=name) for name, (model, _, _) in runs.items()}
figure, ax = plt.subplots(figsize=(6.5, 3.6))
for name, profile in profiles.items():
    values = [profile.value("distance_to_one", layer=layer) for layer in range(len(profile.layers))]
    middle = [v[0] for v in values]
    ax.errorbar(
        range(len(middle)),
        middle,
        yerr=[[v[0] - v[1] for v in values], [v[2] - v[0] for v in values]],
        marker="o",
        markersize=4,
        label=name,
    )
ax.set(xlabel="layer", ylabel="distance to one (markov)")
ax.legend(frameon=False)

# %%
profiles["plain"].compare(profiles["more variance"]).round(4)

# %% [markdown]
# One seed shows how the tools are used. It does not show that a regulariser helps: the claims page has the same
# question with many seeds and paired intervals.
#
# ## In the Trainer and in Lightning
#
# `ga.trainer_callback(ga.VarianceRegulariser("increase"))` is a callback of the Trainer, and
# `ga.lightning_callback(...)` one of Lightning. Both add the penalty to the loss, log the figures, and keep the
# gradient right under gradient accumulation.
#
# ## What to try next
#
# - `ga.CurvatureRegulariser("increase", gamma=0.1)` puts exact curvature itself into the loss.
# - Repeat the comparison with five seeds before you believe it.
# - `ga.plots.training_curves` draws the logs that `geoattn train` writes.
