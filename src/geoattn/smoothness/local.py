"""The local Lipschitz constant of attention at given tokens: the spectral norm of its Jacobian, matrix-free."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from geoattn._core.arguments import read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.smoothness.attention_map import AttentionMap, NormPlace
from geoattn.smoothness.inputs import read_tokens
from geoattn.smoothness.jacobian import Jacobian, Wrt
from geoattn.smoothness.norms import Norm
from geoattn.smoothness.operator_norm import Found, operator_norm
from geoattn.smoothness.result import Convergence, Smoothness

__all__ = ["local_lipschitz", "local_lipschitz_at", "packed"]

_BASIS_BYTES = 1 << 30


def local_lipschitz(
    tokens: Any,
    A: Any,
    V: Any = None,
    *,
    W: Any = None,
    bias: Any = None,
    causal: bool = False,
    mask: Any = None,
    context: Any = None,
    context_mask: Any = None,
    wrt: Wrt = "both",
    residual: bool = False,
    norm: Literal["layer", "rms"] | Norm | None = None,
    norm_place: NormPlace = "before",
    starts: Any = 2,
    tolerance: Any = 1e-6,
    iterations: Any = 400,
    seed: Any = 0,
    search: Literal["float64", "float32"] = "float64",
) -> Smoothness:
    r"""How much one attention map amplifies a small move of its tokens: :math:`\|D_X f\|_2` at the tokens X.

    .. math:: f(X)_i = \sum_h W_h V_h \sum_j P^h_{ij} x_j, \qquad
        P^h_{i\cdot} = \mathrm{softmax}_j \langle A_h x_i, x_j \rangle, \qquad
        \|D_X f\|_2 = \max_{\sum_i |h_i|^2 = 1} \Big(\sum_i |(D_X f\,h)_i|^2\Big)^{1/2}

    Its supremum over a convex set of token clouds is the Lipschitz constant there. The plain map is without residual
    and norm; both can be put around it, as named.

    Parameters
    ----------
    tokens
        (n, d), or (b, n, d) for b samples; NumPy or torch, any float dtype and device; computed in float64.
    A, V, W, bias, causal, residual, norm, norm_place
        As in `AttentionMap.of`: A is (d, d), (h, d, d) or a pair (Q, K); any scale is inside A; None is the identity.
    mask
        (n,) or (b, n) bool, True for a real token. Padded tokens are no keys, no inputs and no outputs.
    context, context_mask
        (m, c) or (b, m, c): keys and values come from it (cross-attention).
    wrt
        Which of them moves in cross-attention: ``"tokens"``, ``"context"`` or ``"both"`` (default).
    starts
        Independent random starts, by ``seed``.
    tolerance
        On the residual, relative to the value. The error of the value is far smaller unless singular values crowd.
    iterations
        Most Lanczos steps.
    search
        ``"float32"`` looks for the worst move in single precision, at half the memory and a third of the time; value
        and residual are still evaluated in float64, and improved in float64 where the tolerance asks for it (below
        about 1e-5).

    Returns
    -------
    Smoothness
        Value, residual, agreement of the starts, iterations, worst direction; NaN with a status when not converged.

    Notes
    -----
    One step is one product with J and one with its transpose: O(h n^2 (r + p)) time each, O(n d) memory, plus 2 x 33
    vectors of the size of the tokens per start; samples are taken in groups whose vectors fill about a gigabyte.
    Reference: Castin, Ablin and Peyre, How Smooth Is Attention?, 2024.

    Examples
    --------
    One token is mapped to V x, so the constant is the norm of V:

    >>> import numpy as np
    >>> from geoattn.smoothness import local_lipschitz
    >>> local_lipschitz(np.array([[1.0, 2.0]]), np.eye(2), np.diag([3.0, 1.0])).value
    3.0

    Four tokens far from a fifth that all of them attend to follow it, each: sqrt(4):

    >>> tokens = np.array([[-5.0, 0.0]] + [[5.0, 0.0]] * 4)
    >>> result = local_lipschitz(tokens, -np.eye(2))
    >>> result.value, result.residual < 1e-6
    (2.0, True)
    """
    x, valid, batched = read_tokens(tokens, mask)
    y, valid_y = None, None
    if context is not None:
        y, valid_y, many = read_tokens(context, context_mask, "context")
        if many != batched or y.shape[0] != x.shape[0]:
            shapes = [tuple(t.shape if axis else t.shape[1:]) for t, axis in ((x, batched), (y, many))]
            raise GeoattnError(f"tokens and context must have the same samples; got {shapes[0]} and {shapes[1]}.")
        y = y.to(x.device)
    elif context_mask is not None:
        raise GeoattnError("context_mask came without a context; the mask of self-attention is mask=.")
    if wrt not in ("tokens", "context", "both"):
        raise GeoattnError(f"wrt must be 'tokens', 'context' or 'both'; got {wrt!r}.")
    f = AttentionMap.of(A, V, W, bias=bias, causal=causal, residual=residual, norm=norm, norm_place=norm_place)
    return local_lipschitz_at(
        f, x, y, mask=valid, context_mask=valid_y, wrt=wrt, batched=batched,
        starts=starts, tolerance=tolerance, iterations=iterations, seed=seed, search=search,
    )  # fmt: skip


def local_lipschitz_at(
    f: AttentionMap,
    x: torch.Tensor,
    y: torch.Tensor | None = None,
    *,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    wrt: Wrt = "both",
    batched: bool = True,
    starts: Any = 2,
    tolerance: Any = 1e-6,
    iterations: Any = 400,
    seed: Any = 0,
    search: Literal["float64", "float32"] = "float64",
) -> Smoothness:
    """`local_lipschitz` of a map that is already built, at (b, n, d) float64 tokens that are already checked."""
    starts, iterations = read_count("starts", starts, least=1), read_count("iterations", iterations, least=1)
    seed, tolerance = read_count("seed", seed, least=0), read_number("tolerance", tolerance, above=0)
    if search not in ("float64", "float32"):
        raise GeoattnError(f"search must be 'float64' or 'float32'; got {search!r}.")
    # samples in groups whose Lanczos vectors stay small
    numbers = x[0].numel() + (0 if y is None else y[0].numel()) + x.shape[1] * f.out_width
    group = max(1, int(_BASIS_BYTES / (33 * numbers * starts * (8 if search == "float64" else 4))))
    parts = []
    for start in range(0, x.shape[0], group):
        these = slice(start, start + group)
        masks = {name: None if m is None else m[these] for name, m in (("mask", mask), ("context_mask", context_mask))}
        exact = Jacobian(f, x[these], None if y is None else y[these], **masks, wrt=wrt)
        seeker = exact
        if search == "float32":
            seeker = Jacobian(f, x[these].float(), None if y is None else y[these].float(), **masks, wrt=wrt)
        parts.append(
            operator_norm(
                exact, seeker, (len(x[these]), exact.in_size), seeker.tokens, real=exact.real_inputs(),
                starts=starts, tolerance=tolerance, steps=iterations, seed=seed, floor=exact.rounding(),
            )
        )  # fmt: skip
    found = Found.joined(parts)
    settings = {
        "starts": starts, "tolerance": tolerance, "iterations": iterations, "seed": seed, "search": search,
        "heads": f.heads, "causal": f.causal, "residual": f.residual,
        "norm": None if f.norm is None else f.norm.kind, "norm_place": f.norm_place if f.norm else None,
        "wrt": wrt if y is not None else "tokens", "n": x.shape[1], "d": x.shape[2], "dtype": "float64",
        "rounding": found.floor, "geoattn": __version__, "torch": torch.__version__,
    }  # fmt: skip
    tokens_move = y is None or wrt != "context"
    at = x[0].numel() if tokens_move else 0
    return packed(
        found,
        found.right[:, :at].view(x.shape) if tokens_move else None,
        found.left.view(x.shape[0], x.shape[1], -1),
        found.right[:, at:].view(y.shape) if y is not None and wrt != "tokens" else None,
        batched,
        settings,
    )


def packed(
    found: Found,
    direction: torch.Tensor | None,
    response: torch.Tensor,
    context_direction: torch.Tensor | None,
    batched: bool,
    settings: dict[str, Any],
) -> Smoothness:
    """NumPy arrays over samples, or plain numbers for one sample."""
    status = np.array(found.status, dtype=np.uint8)
    lower = found.lower.cpu().numpy()
    value = np.where(status == Convergence.CONVERGED, lower, np.nan)
    residual, agreement = found.residual.cpu().numpy(), found.agreement.cpu().numpy()
    moves = [None if t is None else t.double().cpu().numpy() for t in (direction, response, context_direction)]
    iterations = found.iterations.cpu().numpy()
    if batched:
        assert moves[1] is not None
        return Smoothness(value, lower, residual, agreement, iterations, status, moves[0], moves[1], moves[2], settings)
    first = [None if t is None else t[0] for t in moves]
    assert first[1] is not None
    return Smoothness(
        float(value[0]), float(lower[0]), float(residual[0]), float(agreement[0]), int(iterations[0]),
        Convergence(int(status[0])), first[0], first[1], first[2], settings,
    )  # fmt: skip
