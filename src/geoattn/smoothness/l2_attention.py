"""The bound of Kim, Papamakarios and Mnih for L2 attention, which is Lipschitz everywhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import lambertw

from geoattn._core.arguments import read_count
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.bounds import L2_ATTENTION, Bound
from geoattn.smoothness.head_bounds import log
from geoattn.smoothness.inputs import read_matrices

__all__ = ["l2_attention_bound"]


def l2_attention_bound(query: Any, value: Any, output: Any, n: Any) -> Bound:
    r"""Upper bound of the Lipschitz constant of L2 attention on all of (R^d)^n: it does not depend on the radius.

    A bound of another map than dot-product attention, which has no such constant: weights
    :math:`P \propto e^{-|W_Q x_i - W_Q x_j|^2/\sqrt k}`, tied queries and keys, k = rows of W_Q, output
    :math:`W_O\,\mathrm{cat}_h(W_V^h W_Q^{h\top} W_Q^h \sum_j P_{ij} x_j) / \sqrt k`:

    .. math:: \mathrm{Lip} \le \sqrt{\tfrac nk}\,(4\varphi^{-1}(n-1) + 1)
        \Big(\sum_h \|W_Q^h\|^4 \|W_V^h\|^2\Big)^{1/2} \|W_O\|, \qquad \varphi(x) = x e^{x+1}

    so :math:`\varphi^{-1}(n-1)` = W_0((n-1)/e) with Lambert's W. The fourth power of W_Q is what scaling demands:
    replacing W_Q by c W_Q gives c g(c X), so the constant scales like c^2.

    Parameters
    ----------
    query, value
        (k, d) and (p, d), or with a head axis in front.
    output
        (e, h p).
    n
        Number of tokens.

    Notes
    -----
    Reference: Kim, Papamakarios and Mnih, The Lipschitz Constant of Self-Attention, 2021, in the corrected form.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import l2_attention_bound
    >>> l2_attention_bound(np.eye(2), np.eye(2), np.eye(2), n=1).value
    0.7071067811865476
    """
    q, v = read_matrices(query, "query"), read_matrices(value, "value")
    o, n = read_matrices(output, "output"), read_count("n", n, least=1, most=10**18)
    if len(q) != len(v) or len(o) != 1 or v.shape[2] != q.shape[2] or o.shape[2] != len(v) * v.shape[1]:
        raise GeoattnError(
            f"query (h, k, d), value (h, p, d) and output (e, h p) must fit; got {tuple(q.shape)}, {tuple(v.shape)},"
            f" {tuple(o.shape[1:])}."
        )
    norms = [[float(np.linalg.norm(t.cpu().numpy(), 2)) for t in w] for w in (q, v, o)]
    inverse = float(lambertw((n - 1) / math.e).real)
    heads = np.logaddexp.reduce([4 * log(a) + 2 * log(b) for a, b in zip(norms[0], norms[1], strict=True)])
    log_value = 0.5 * math.log(n / q.shape[1]) + math.log(4 * inverse + 1) + 0.5 * float(heads) + log(norms[2][0])
    return Bound(
        "L2 attention upper", L2_ATTENTION, "upper",
        log_value, ("L2 attention", "queries and keys tied", "no mask"),
        reference="Kim, Papamakarios and Mnih 2021, with the fourth power that scaling demands",
    )  # fmt: skip
