"""Local Lipschitz constants of a captured attention layer and of its heads, with bounds at the same radius."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.smoothness.captured_jacobian import CapturedJacobian
from geoattn.smoothness.eigenpairs import gamma_of
from geoattn.smoothness.head_bounds import HeadBounds
from geoattn.smoothness.operator_norm import Found, operator_norm
from geoattn.smoothness.projections import Projections
from geoattn.smoothness.result import Convergence

__all__ = ["LayerSmoothness", "layer_smoothness"]

_BASIS_BYTES = 1 << 29
_BASIS = 33  # Lanczos vectors on each side


@dataclass(frozen=True, eq=False, repr=False)
class LayerSmoothness(Displayed):
    r"""One attention layer at the tokens of b samples: h heads on their own, and the layer as a whole.

    A head is the map :math:`X \mapsto W_h V_h \sum_j P^h_{ij} x_j` of the tokens that the linear layers of queries,
    keys and values read (after a norm inside the module, if there is one): no residual, no norm. The layer is the sum
    of its heads, :math:`\sum_h W_h f_h`. Where no output projection W was found (``projected`` False) heads are
    :math:`V_h \sum_j P_{ij} x_j`, and the layer puts them side by side.

    ``heads`` (b, h) and ``whole`` (b,) are local constants, NaN where ``status`` is not CONVERGED; ``lower_heads`` and
    ``lower_whole`` hold in any case. Residuals are as in `Smoothness`. ``moves`` (b, h, n) is how far each token moves
    in the worst direction of a head, ``whole_moves`` (b, n) in that of the layer: squares sum to one.

    ``radius`` (b,) is the largest norm of a token, ``rms`` (b,) the root mean square, ``n`` (b,) the number of tokens.
    ``bound`` and ``sharper`` (b, h) bound the constant of a head over all clouds of n tokens in that ball (the printed
    bound, and the triangle inequality); ``whole_bound`` and ``whole_sharper`` (b,) that of the layer. ``gamma`` (h,) is
    that of :math:`A_h = K_h^\top Q_h` (at equal places when queries turn), NaN without a real eigenvalue.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=1)
    >>> found = ga.model_smoothness(ga.load_model("lvit-digits"), digits, layers="transformer.layers.0*").calls[0]
    >>> found.name, found.heads.shape, found.moves.shape
    ('transformer.layers.0.0', (1, 1), (1, 1, 17))
    >>> bool((found.heads <= found.sharper).all() and (found.sharper <= found.bound).all())
    True
    """

    name: str
    n: np.ndarray
    radius: Float[np.ndarray, " b"]
    rms: Float[np.ndarray, " b"]
    heads: Float[np.ndarray, "b h"]
    lower_heads: Float[np.ndarray, "b h"]
    residual: Float[np.ndarray, "b h"]
    status: UInt8[np.ndarray, "b h"]
    moves: Float[np.ndarray, "b h n"]
    bound: Float[np.ndarray, "b h"]
    sharper: Float[np.ndarray, "b h"]
    gamma: Float[np.ndarray, " h"]
    whole: Float[np.ndarray, " b"]
    lower_whole: Float[np.ndarray, " b"]
    whole_residual: Float[np.ndarray, " b"]
    whole_status: UInt8[np.ndarray, " b"]
    whole_moves: Float[np.ndarray, "b n"]
    whole_bound: Float[np.ndarray, " b"]
    whole_sharper: Float[np.ndarray, " b"]
    projected: bool
    turned: bool
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> Float[np.ndarray, "b h"]:
        """Local constant of each head divided by its printed bound; at most one."""
        return self.heads / self.bound

    @property
    def r2_gamma(self) -> Float[np.ndarray, "b h"]:
        """R^2 gamma: the poster says 100 to 1,000 in practice."""
        return self.radius[:, None] ** 2 * self.gamma


def layer_smoothness(
    p: Projections,
    *,
    starts: Any = 2,
    tolerance: Any = 1e-4,
    iterations: Any = 400,
    seed: Any = 0,
    heads: bool = True,
    whole: bool = True,
) -> LayerSmoothness:
    """Local constants, worst moves and bounds of one call; see `LayerSmoothness`.

    The error of a value is about the square of ``tolerance`` unless singular values crowd. ``heads=False`` or
    ``whole=False`` leave out one of the two, which cost about the same: their entries are NaN.
    """
    options = {
        "starts": read_count("starts", starts, least=1), "steps": read_count("iterations", iterations, least=1),
        "seed": read_count("seed", seed, least=0), "tolerance": read_number("tolerance", tolerance, above=0),
    }  # fmt: skip
    b, h, n, _ = p.q.shape
    if not bool(torch.isfinite(p.tokens if p.mask is None else p.tokens[p.mask]).all()):
        raise GeoattnError(f"{p.name}: its tokens are not finite; look for overflow in the model.")
    alone = _search(p.reduced(), "each", options) if heads or (whole and h == 1) else None
    each, moves = _columns(alone, (b, h)), _lengths(alone, (b, h, n))
    if whole and h == 1:
        layer, whole_moves = [t[:, 0] for t in each], moves[:, 0]
    else:
        together = _search(p, "sum", options) if whole else None
        layer, whole_moves = _columns(together, (b,)), _lengths(together, (b, n))
    real = torch.ones(b, n, dtype=torch.bool) if p.mask is None else p.mask
    norms = p.tokens.norm(dim=-1).masked_fill(~real, 0.0)
    radius = norms.max(dim=1).values.numpy()
    counts = real.sum(1).numpy()
    printed, sharper, gamma = _bounds(p, radius, counts)
    with np.errstate(over="ignore"):
        upper, triangle = np.exp(printed), np.exp(sharper)
        join = (lambda t: t.sum(1)) if p.output is not None else (lambda t: np.sqrt((t**2).sum(1)))
        whole_upper, whole_triangle = join(upper), join(triangle)
    settings = {**options, "geoattn": __version__, "torch": torch.__version__, "dtype": "float64"}
    rms = (norms.square().sum(1) / real.sum(1)).sqrt().numpy()
    value, lower, residual, status = each
    return LayerSmoothness(
        p.name, counts, radius, rms, value, lower, residual, status, moves, upper, triangle, gamma, layer[0], layer[1],
        layer[2], layer[3], whole_moves, whole_upper, whole_triangle, p.output is not None, p.turned, settings,
    )  # fmt: skip


def _search(p: Projections, heads: Literal["each", "sum"], options: dict[str, Any]) -> Found:
    """All maps, in groups of samples and heads whose Lanczos vectors stay small."""
    b, h, n, _ = p.q.shape
    out = p.v.shape[-1] if p.output is None else p.output.shape[1]
    numbers = n * (p.query.shape[-1] + (out if heads == "each" or p.output is not None else h * out))
    room = max(1, int(_BASIS_BYTES / (8 * _BASIS * numbers * options["starts"])))  # maps at once
    found = []
    for sample in range(0, b, max(1, room // h) if heads == "each" else room):
        some = slice(sample, sample + (max(1, room // h) if heads == "each" else room))
        step = min(h, room) if heads == "each" else h
        for head in range(0, h, step):
            part = _part(p, some, slice(head, head + step))
            J = CapturedJacobian(part, heads)
            found.append(
                operator_norm(
                    J, J, (J.maps, J.in_size), part.q.reshape(-1)[:1], real=J.real_inputs(), floor=J.rounding(),
                    **options,
                )
            )  # fmt: skip
    return Found.joined(found)


def _part(p: Projections, samples: slice, heads: slice) -> Projections:
    def of_call(t: Tensor | None) -> Any:
        return None if t is None else t[samples, heads]

    return replace(
        p, tokens=p.tokens[samples], mask=None if p.mask is None else p.mask[samples],
        query=p.query[heads], key=p.key[heads], value=p.value[heads],
        q=of_call(p.q), k=of_call(p.k), v=of_call(p.v), turn_query=of_call(p.turn_query), turn_key=of_call(p.turn_key),
        bias=None if p.bias is None else p.bias[heads], output=None if p.output is None else p.output[heads],
    )  # fmt: skip


def _columns(found: Found | None, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Value, lower, residual, status; NaN for what was not asked for."""
    if found is None:
        nothing = np.full(shape, np.nan)
        return [nothing, nothing, nothing, np.full(shape, Convergence.NOT_CONVERGED, dtype=np.uint8)]
    status = np.array(found.status, dtype=np.uint8)
    lower = found.lower.numpy()
    value = np.where(status == Convergence.CONVERGED, lower, np.nan)
    return [t.reshape(shape) for t in (value, lower, found.residual.numpy(), status)]


def _lengths(found: Found | None, shape: tuple[int, ...]) -> np.ndarray:
    """How far each token moves in the worst direction."""
    return np.full(shape, np.nan) if found is None else found.right.view(*shape, -1).norm(dim=-1).numpy()


def _bounds(p: Projections, radius: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Logarithms (b, h) of the printed and of the sharper bound, and (h,) gamma.

    A bias a of the queries, :math:`\langle Ax_i + a, x_j\rangle`, is a coordinate c that all tokens share: the bounds
    are taken for (x, c) with :math:`\tilde A = (A, a/c)` and :math:`\tilde R^2 = R^2 + c^2`, at the c that makes them
    least. Turned queries and keys have :math:`|A_{ij}| \le |T^k_jK|\,|T^q_iQ|`, which the argument needs and no more.
    """
    small = p.reduced()
    h = len(small.query)
    v = torch.linalg.matrix_norm(small.value if small.output is None else small.output @ small.value, 2)
    gamma, norms, bias = np.full(h, np.nan), np.zeros(h), np.zeros(h)
    for head in range(h):
        a = (small.key[head].T @ small.query[head]).numpy()
        pair = gamma_of(a)
        gamma[head] = np.nan if pair is None else pair[0]
        if p.turned:
            left, right = (_norm_of_turned(t, w[head], head) for t, w in
                           ((p.turn_query, small.query), (p.turn_key, small.key)))  # fmt: skip
            norms[head] = left * right
        else:
            norms[head] = np.linalg.norm(a, 2)
            bias[head] = 0.0 if p.bias is None else float((small.key[head].T @ p.bias[head]).norm())
    printed, sharper = (np.empty((len(radius), h)) for _ in range(2))
    for s, (R, n) in enumerate(zip(radius, counts, strict=True)):
        for head in range(h):
            a, r = _lifted(norms[head], bias[head], float(R))
            bounds = HeadBounds(np.array([[a]]), np.array([[float(v[head])]]), int(n), r)
            printed[s, head], sharper[s, head] = bounds.upper(), bounds.sharper()
    return printed, sharper, gamma


def _lifted(a: float, bias: float, R: float) -> tuple[float, float]:
    """Norm and radius with the bias as a coordinate: least (a^2 + bias^2 / t) (R^2 + t)^2 over t = c^2."""
    if bias == 0 or R == 0:
        return a, R
    t = R**2 * np.logspace(-6, 6, 481)
    best = float(t[np.argmin((a**2 + bias**2 / t) * (R**2 + t) ** 2)])
    return math.sqrt(a**2 + bias**2 / best), math.sqrt(R**2 + best)


def _norm_of_turned(turn: Tensor | None, matrix: Tensor, head: int) -> float:
    if turn is None:
        return float(torch.linalg.matrix_norm(matrix, 2))
    triangle = torch.linalg.qr(matrix.T)[1].T  # (r, r), with the norms of (T Q)
    return float(torch.linalg.matrix_norm(turn[:, head] @ triangle, 2).max())
