"""Gradient ascent on the local Lipschitz constant, from given tokens: how bad can tokens near data get?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.inputs import read_tokens
from geoattn.smoothness.local import local_lipschitz_at

__all__ = ["Ascent", "climb_lipschitz"]


@dataclass(frozen=True, eq=False, repr=False)
class Ascent(Displayed):
    """The end of a climb; what `climb_lipschitz` returns.

    ``tokens`` (n, d) are the last tokens, and ``value`` is a certified lower bound of the local constant there.
    ``history`` holds the value after each step. All tokens stay in the ball of radius ``radius``.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import climb_lipschitz
    >>> tokens = np.random.default_rng(0).standard_normal((8, 3))
    >>> climb = climb_lipschitz(tokens, -np.eye(3), steps=5)
    >>> climb.tokens.shape, climb.value > climb.start_value, climb.gain == climb.value / climb.start_value
    ((8, 3), True, True)
    """

    tokens: Float[np.ndarray, "n d"]
    value: float
    start_value: float
    history: Float[np.ndarray, " steps"]
    radius: float
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """The value divided by the value at the start."""
        return self.value / self.start_value


def climb_lipschitz(
    tokens: Any,
    A: Any,
    V: Any = None,
    *,
    W: Any = None,
    causal: bool = False,
    radius: Any = None,
    surface: Literal["ball", "sphere"] = "ball",
    steps: Any = 100,
    seed: Any = 0,
) -> Ascent:
    r"""Climb the local Lipschitz constant :math:`s(X) = \|D_Xf\|_2` from data, with tokens kept in a ball.

    At a simple singular value with unit vectors u, v the gradient is that of :math:`\langle u, D_Xf\,v\rangle` in X
    with u, v held fixed; where the value is multiple it is still a direction of ascent for one of its copies. Steps
    are along the gradient scaled to the radius, projected to the ball (or sphere), taken only when the constant grows;
    the step is halved when it does not.

    Parameters
    ----------
    tokens
        (n, d).
    A, V, W, causal
        As in `local_lipschitz`.
    radius
        Of the ball; default: the largest norm of a token.
    surface
        ``"sphere"`` keeps every token at this norm.
    steps
        Most steps, accepted or not.

    Notes
    -----
    A step costs a local constant, O(n^2 d) times its Lanczos steps, and one backward pass with O(n^2) memory.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import climb_lipschitz
    >>> tokens = np.random.default_rng(0).standard_normal((8, 3))
    >>> result = climb_lipschitz(tokens, -np.eye(3), steps=20)
    >>> result.gain > 1.5
    True
    """
    x, _, batched = read_tokens(tokens, None)
    if batched:
        raise GeoattnError(f"climb from one cloud of shape (n, d); got {tuple(x.shape)}.")
    f = AttentionMap.of(A, V, W, causal=causal)
    steps, seed = read_count("steps", steps, least=1), read_count("seed", seed, least=0)
    largest = float(x.norm(dim=-1).max())
    radius = largest if radius is None else read_number("radius", radius, above=0)
    if surface not in ("ball", "sphere"):
        raise GeoattnError(f"surface must be 'ball' or 'sphere'; got {surface!r}.")
    if radius == 0 or (surface == "sphere" and bool((x.norm(dim=-1) == 0).any())):
        raise GeoattnError("tokens at zero have no direction to climb in: give a radius in the ball, or other tokens.")
    x = _project(x, radius, surface)
    value, u, v = _triplet(f, x, seed)
    start, history, step = value, [value], 0.3
    gradient = _gradient(f, x, u, v)
    for _ in range(steps):
        largest = float(gradient.norm(dim=-1).max())
        if largest == 0 or step < 1e-6:
            break
        trial = _project(x + step * radius / largest * gradient, radius, surface)
        reached, u_new, v_new = _triplet(f, trial, seed)
        if reached > value:
            x, value, u, v = trial, reached, u_new, v_new
            gradient = _gradient(f, x, u, v)
            step = min(1.0, 1.5 * step)
        else:
            step /= 2
        history.append(value)
    settings = {"surface": surface, "steps": steps, "seed": seed, "causal": bool(causal), "heads": f.heads}
    return Ascent(x[0].cpu().numpy(), value, start, np.array(history), radius, settings)


def _triplet(f: AttentionMap, x: Float[Tensor, "1 n d"], seed: int) -> tuple[float, Tensor, Tensor]:
    found = local_lipschitz_at(f, x, batched=False, starts=1, tolerance=1e-3, iterations=100, seed=seed)
    assert found.direction is not None
    lower = float(found.lower)
    return lower, torch.as_tensor(found.response).to(x), torch.as_tensor(found.direction).to(x)


def _gradient(f: AttentionMap, x: Float[Tensor, "1 n d"], u: Tensor, v: Tensor) -> Float[Tensor, "1 n d"]:
    """Of <u, Df v> in the tokens: <u, f(x)> is differentiated along v, backwards twice."""
    with torch.enable_grad():
        at = x[0].clone().requires_grad_()
        (back,) = torch.autograd.grad((f(at) * u).sum(), at, create_graph=True)
        return torch.autograd.grad((back * v).sum(), at)[0][None]


def _project(x: Float[Tensor, "1 n d"], radius: float, surface: str) -> Float[Tensor, "1 n d"]:
    norms = x.norm(dim=-1, keepdim=True)
    if surface == "sphere":
        return x * (radius / norms)
    return x * (radius / norms.clamp_min(radius))
