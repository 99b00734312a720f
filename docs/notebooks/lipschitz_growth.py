# %% [markdown]
# # How the Lipschitz constant grows with the number of tokens
#
# The local Lipschitz constant of attention says how much a small change of the tokens can grow. Theory allows it to
# grow like the square root of the number of tokens n. This notebook measures it for tokens that are built to show this
# growth, for random ones and for those of a trained model. It uses what comes with geoattn.

# %%
import matplotlib.pyplot as plt
import numpy as np

import geoattn as ga

rng = np.random.default_rng(0)
d, sizes = 16, [8, 16, 32, 64, 128, 256]
A = rng.standard_normal((d, d)) / np.sqrt(d)
radius = np.sqrt(d)  # layer normalisation gives tokens this norm


def random_tokens(n):
    tokens = rng.standard_normal((n, d))
    return radius * tokens / np.linalg.norm(tokens, axis=1, keepdims=True)


grown = {
    "adversarial tokens": ga.smoothness.lipschitz_growth([ga.adversarial_tokens(A, n, radius) for n in sizes], A),
    "random tokens": ga.smoothness.lipschitz_growth([random_tokens(n) for n in sizes for _ in range(3)], A),
}
figure, ax = plt.subplots(figsize=(6.2, 4))
for name, growth in grown.items():
    law = growth.fit
    ax.loglog(growth.n, growth.value, "o", markersize=4, label=f"{name}: exponent {law.exponent:.2f}")
    ax.loglog(sizes, law.factor * np.array(sizes) ** law.exponent, color=ax.lines[-1].get_color(), linewidth=1)
ax.set(xlabel="number of tokens", ylabel="local Lipschitz constant")
ax.legend(frameon=False)

# %% [markdown]
# The constant of the adversarial tokens grows like √n, as Castin, Ablin and Peyré (2024) prove. One token stands apart,
# all others attend to it, and a small move of that token moves all outputs. The constant of random tokens depends on
# their norm and hardly on their number. The adversarial tokens are built for growth: at small n random tokens may have
# the larger constant.
#
# ## One number, with its certificate

# %%
found = ga.local_lipschitz(ga.adversarial_tokens(A, 128, radius), A)
print(found)
print(f"residual {found.residual:.1e}; the token that moves most is number {int(np.argmax(found.moves()))}")

# %% [markdown]
# The value is a singular value of the derivative, found by Lanczos without a matrix of size n d × n d. The residual
# bounds its error. A search that does not converge gives NaN and says so.
#
# ## What theory allows
#
# `ga.lipschitz_bounds` lists every bound with its conditions. The bounds hold for all clouds of n tokens in the ball.

# %%
ga.lipschitz_bounds(A, np.eye(d), n=128, R=radius).to_pandas()

# %% [markdown]
# ## The heads of a trained model
#
# `ga.model_smoothness` takes queries, keys and values from the model itself, biases and norms included.

# %%
model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=8)
summary = ga.model_smoothness(model, digits).summary()
summary[["layer", "head", "value", "bound", "ratio", "r2_gamma"]].round(3)

# %%
figure, ax = plt.subplots(figsize=(6.2, 3.2))
heads = summary[summary["head"].notna()]
ax.semilogy(heads["layer"], heads["value"], "o-", label="measured at the tokens of digits")
ax.semilogy(heads["layer"], heads["bound"], "s--", label="bound for all tokens in the ball")
ax.set(xlabel="layer", ylabel="Lipschitz constant")
ax.legend(frameon=False)

# %% [markdown]
# The bound is far above what the model does on real images. `r2_gamma` says whether worst-case tokens could reach
# growth like √n at all: they can when it is well above log(n) / 2.

# %%
print(f"log(n) / 2 = {np.log(17) / 2:.2f} for the 17 tokens of this model")

# %% [markdown]
# ## What to try next
#
# - `geoattn smoothness MODEL --data sst2` measures every layer and head of your model.
# - `ga.smoothness.climb_lipschitz` starts from your own tokens and makes the constant larger.
# - `geoattn study lipschitz-growth` repeats the figure of the poster with MiniLM and film reviews.
