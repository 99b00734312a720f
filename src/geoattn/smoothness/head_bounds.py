"""The formulas of the bounds for one head, in logarithms, so that a large radius does not overflow."""

from __future__ import annotations

import math

import numpy as np

from geoattn.smoothness.eigenpairs import gamma_of

__all__ = ["HeadBounds", "log"]


class HeadBounds:
    r"""Logarithms of the bounds of one head; a = ||A||_2, v = ||V||_2, gamma and u as in `gamma_of`.

    Upper bounds start from the three terms of the Jacobian,

    .. math:: (D_Xf\,H)_i = V\Big[\sum_j P_{ij}h_j + \sum_j P_{ij}(x_j - m_i)\langle Ax_i, h_j\rangle + C_iAh_i\Big],

    where m_i and C_i are mean and covariance of the tokens under row i; in the ball the variance is at most R^2.
    """

    def __init__(self, A: np.ndarray, V: np.ndarray | None, n: int, R: float) -> None:
        self.A, self.n, self.R = A, n, R
        self.V = np.eye(len(A)) if V is None else V
        self.identity = self.V.shape[0] == self.V.shape[1] and np.array_equal(self.V, np.eye(len(A)))
        self.log_a = log(float(np.linalg.norm(A, 2))) + 2 * log(R)  # of a R^2
        self.log_v = log(float(np.linalg.norm(self.V, 2)))
        self.log_others = -math.inf if n == 1 else math.log(n - 1)
        self.pair = gamma_of(A)
        self.gamma = math.nan if self.pair is None else self.pair[0]

    def upper(self) -> float:
        """As printed: (|x| + |y| + |z|)^2 <= 3 (|x|^2 + |y|^2 + |z|^2), and |x_j - m_i| <= 2R."""
        log_n = math.log(self.n)
        inner = np.logaddexp(2 * self.log_a + math.log(4 * self.n + 1), log_n)
        return self.log_v + 0.5 * (math.log(3) + float(inner))

    def sharper(self) -> float:
        """The norms of the three terms added: sqrt(n), sqrt(n) a R^2 and a R^2, since columns of P sum to at most n."""
        half = 0.5 * math.log(self.n)
        return self.log_v + float(np.logaddexp(half + np.logaddexp(0.0, self.log_a), self.log_a))

    def mean_field_upper(self) -> float:
        """As printed: weights differ from uniform by at most exp(2 a R^2)."""
        return self.log_v + float(np.logaddexp(0.0, math.log(3) + self.log_a)) + 2 * math.exp(self.log_a)

    def masked_upper(self) -> float:
        """P_ij <= exp(2 a R^2) / i: running means, of norm at most 2 (Hardy), times the sizes of the terms."""
        a = math.exp(self.log_a)
        return self.log_v + float(np.logaddexp(math.log(2) + math.log1p(2 * a) + 2 * a, self.log_a))

    def lower(self) -> float:
        """P sqrt(n - 1): the odd token moves across u, and n - 1 outputs follow by P."""
        return 0.5 * self.log_others + self._log_weight(self.log_others)

    def lower_any(self, causal: bool, log_others: float | None = None) -> float:
        """The odd token moves along u or across it; n - 1 may be other than that of the cloud."""
        assert self.pair is not None
        others = self.log_others if log_others is None else log_others
        u, log_p = self.pair[1], self._log_weight(others)
        rest = max(0.0, -math.expm1(log_p))  # 1 - P
        along = log_p + math.log1p(2 * self.gamma * self.R**2 * rest)
        # masked rows have weights from P to 1, and the factor is concave in the weight: least at an end
        along = log(float(np.linalg.norm(self.V @ u))) + (min(along, 0.0) if causal else along)
        across = log(float(np.linalg.norm(self.V - np.outer(self.V @ u, u), 2))) + log_p
        return 0.5 * others + max(along, across)

    def mean_field_lower(self) -> float:
        """As printed, for R to infinity."""
        return log(self.gamma / 2) + 2 * log(self.R) + self.R**2 * self.gamma

    def mean_field_lower_finite(self) -> float:
        """`lower_any` at the whole n - 1 next to exp(2 gamma R^2); beyond 2^53 every float is whole."""
        x = 2 * self.R**2 * self.gamma
        return self.lower_any(False, x if x > 36 else math.log(round(math.exp(x))))

    def quadratic(self) -> float:
        """A token at 0 sees all others alike; k of them at Rw and k at -Rw: C_1 = 2k/n R^2 w w^T."""
        left, values, _ = np.linalg.svd(self.A)
        w, pairs = left[:, 0], (self.n - 1) // 2
        gain = (
            log(2 * pairs / self.n) + 2 * log(self.R) + log(float(values[0])) + log(float(np.linalg.norm(self.V @ w)))
        )
        loss = self.log_v - math.log(self.n)
        return gain + math.log1p(-math.exp(loss - gain)) if gain > loss else -math.inf

    def _log_weight(self, log_others: float) -> float:
        """Logarithm of P for n - 1 others, which may be many."""
        return -float(np.logaddexp(0.0, log_others - 2 * self.R**2 * self.gamma))


def log(x: float) -> float:
    """Logarithm with log(0) = -inf."""
    return math.log(x) if x > 0 else -math.inf
