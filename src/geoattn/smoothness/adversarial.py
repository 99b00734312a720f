"""Tokens that make attention amplify like the square root of their number."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from geoattn._core.arguments import read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.eigenpairs import Configuration, eigenpair, gamma_of
from geoattn.smoothness.inputs import read_matrices
from geoattn.smoothness.local import local_lipschitz_at

__all__ = ["Surface", "adversarial_tokens"]

Surface = Literal["ball", "sphere", "layernorm"]


def adversarial_tokens(
    A: Any,
    n: Any,
    R: Any,
    *,
    V: Any = None,
    W: Any = None,
    causal: bool = False,
    surface: Surface = "ball",
    configuration: Configuration | None = None,
    head: Any = None,
) -> Float[np.ndarray, "n d"]:
    r"""Tokens of norm at most R at which attention has a local Lipschitz constant of about sqrt(n - 1).

    One token stands apart, and every other token attends to it. A small move of that one moves all n - 1 outputs, so
    :math:`\|D_Xf\|_2 \ge P\sqrt{n-1}` for V = I, where :math:`P = 1/(1 + (n-1)e^{-g})` is the weight on it and g the
    gap of the logits. The odd token is the first, so that causal attention sees it, too. ("half" gives P sqrt(n): there
    the odd token attends to itself.)

    * ``"half"``: :math:`x_1 = Ru`, the others :math:`\tfrac R2u`, u the eigenvector of the largest real eigenvalue
      :math:`\gamma_1 > 0` of A; :math:`g = R^2\gamma_1/4`.
    * ``"opposite"``: :math:`x_1 = -Ru`, the others :math:`Ru`, u that of the smallest, :math:`\gamma_\delta < 0`;
      :math:`g = 2R^2|\gamma_\delta|`.
    * on a sphere: the others :math:`Rw`, :math:`x_1 = R\,Aw/|Aw|` with the unit w of the largest gap
      :math:`g = R^2(|Aw| - \langle Aw, w\rangle)`, found by gradient ascent from many starts. Every move of
      :math:`x_1` within the sphere then moves the outputs by P.

    Parameters
    ----------
    A
        (d, d), or (h, d, d) for h heads.
    n, R
        Number of tokens (at least 2) and the radius (above 0).
    V, W, causal
        As in `local_lipschitz`. They only matter for several heads: the head (and configuration) is taken whose
        tokens give the whole map the largest local constant.
    surface
        ``"ball"``: one of the two configurations, by default the one of the larger gap. ``"sphere"``: all tokens have
        norm R. ``"layernorm"``: norm R and mean zero, as LayerNorm without gain makes them with R = sqrt(d); a gain is
        part of A.
    configuration, head
        Take this one.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> tokens = ga.adversarial_tokens(np.diag([-1.0, 0.3]), n=101, R=4.0)
    >>> tokens[:2].tolist()
    [[-4.0, 0.0], [4.0, 0.0]]
    >>> ga.local_lipschitz(tokens, np.diag([-1.0, 0.3])).value
    10.0

    Reference: Castin, Ablin and Peyre, How Smooth Is Attention?, 2024.
    """
    a = read_matrices(A, "A")
    if a.shape[1] != a.shape[2]:
        raise GeoattnError(f"A must be square, as tokens attend to each other; got {tuple(a.shape)}.")
    n, R = read_count("n", n, least=2, most=10**18), read_number("R", R, above=0)
    if surface not in ("ball", "sphere", "layernorm"):
        raise GeoattnError(f"surface must be 'ball', 'sphere' or 'layernorm'; got {surface!r}.")
    if configuration is not None and (surface != "ball" or configuration not in ("half", "opposite")):
        raise GeoattnError(f"configuration must be 'half' or 'opposite', in the ball; got {configuration!r}.")
    heads = range(len(a)) if head is None else [read_count("head", head, least=0)]
    if heads[-1] >= len(a):
        raise GeoattnError(f"head must be below {len(a)}; got {heads[-1]}.")
    clouds, why = [], ""
    for h in heads:
        matrix = a[h].cpu().numpy()
        if surface == "ball":
            if configuration or len(heads) == 1:
                found = [_in_ball(matrix, n, R, configuration)]
            else:
                found = [_in_ball(matrix, n, R, "half"), _in_ball(matrix, n, R, "opposite")]
        else:
            found = [_on_sphere(matrix, n, R, surface == "layernorm")]
        clouds += [cloud for cloud in found if not isinstance(cloud, str)]
        why = why or next((cloud for cloud in found if isinstance(cloud, str)), "")
    if not clouds:
        raise GeoattnError(why + (" (in every head)." if len(heads) > 1 else "."))
    if len(clouds) == 1:
        return clouds[0]
    f = AttentionMap.of(a, V, W, causal=causal)
    tokens = torch.as_tensor(np.stack(clouds), device=a.device)
    lower = local_lipschitz_at(f, tokens, starts=1, tolerance=1e-2, iterations=60).lower
    return clouds[int(np.argmax(lower))]


def _in_ball(A: Float[np.ndarray, "d d"], n: int, R: float, wanted: Configuration | None) -> Any:
    """Tokens, or why there are none."""
    pair = gamma_of(A) if wanted is None else eigenpair(A, wanted)
    if pair is None:
        return "A has no real eigenvalue, so neither configuration exists; try surface='sphere'"
    gamma, u, configuration = pair
    if gamma <= 0:
        sign = "positive" if configuration == "half" else "negative"
        return (
            f"configuration '{configuration}' needs a {sign} real eigenvalue of A; the best is 0 or of the other sign"
        )
    tokens = np.tile(R * u * (0.5 if configuration == "half" else 1.0), (n, 1))
    tokens[0] = R * u if configuration == "half" else -R * u
    return tokens


def _on_sphere(A: Float[np.ndarray, "d d"], n: int, R: float, centred: bool) -> Any:
    """Tokens on the sphere (of mean zero), or why there are none."""
    d = len(A)
    frame = np.eye(d)
    if centred:  # an orthonormal basis of the vectors of mean zero
        frame = np.linalg.qr(np.concatenate([np.ones((d, 1)), np.eye(d)[:, : d - 1]], axis=1))[0][:, 1:]
    if frame.shape[1] < (2 if centred else 1):
        return f"tokens of width {d} are too few coordinates for a sphere of mean zero"
    B = frame.T @ A @ frame
    w, gap = _widest_gap(B)
    if gap <= 1e-12 * max(np.linalg.norm(B, 2), 1e-300):
        return "no token on the sphere attends to another more than to itself (A is a multiple of the identity there)"
    u = B @ w / np.linalg.norm(B @ w)
    tokens = np.tile(R * frame @ w, (n, 1))
    tokens[0] = R * frame @ u
    return tokens


def _widest_gap(B: Float[np.ndarray, "d d"]) -> tuple[Float[np.ndarray, " d"], float]:
    r"""Unit w that maximises :math:`|Bw| - \langle Bw, w\rangle`, from eigenvectors and seeded random starts."""
    d = len(B)
    rng = np.random.default_rng(0)
    symmetric = np.linalg.eigh((B + B.T) / 2)[1].T
    w = np.concatenate([symmetric, rng.standard_normal((32 + 2 * d, d))])
    # the maximum for an eigenvector of a positive eigenvalue is at 60 degrees from it, where the gradient is not zero
    w = torch.as_tensor(w / np.linalg.norm(w, axis=1, keepdims=True))
    matrix = torch.as_tensor(B)
    step = torch.full((len(w), 1), 0.5 / max(float(np.linalg.norm(B, 2)), 1e-300), dtype=torch.float64)

    def gap(x: torch.Tensor) -> torch.Tensor:
        image = x @ matrix.T
        return image.norm(dim=1) - (image * x).sum(1)

    best = gap(w)
    for _ in range(300):  # gradient ascent on the sphere; each start halves its own step when it overshoots
        image = w @ matrix.T
        length = image.norm(dim=1, keepdim=True)
        unit = image / torch.where(length > 0, length, 1.0)
        gradient = (unit - w) @ matrix - image
        gradient = gradient - (gradient * w).sum(1, keepdim=True) * w
        trial = w + step * gradient
        trial = trial / trial.norm(dim=1, keepdim=True)
        value = gap(trial)
        up = (value > best)[:, None]
        w, best = torch.where(up, trial, w), torch.maximum(value, best)
        step = torch.where(up, step * 1.5, step * 0.5)
    top = int(best.argmax())
    return w[top].numpy(), float(best[top])
