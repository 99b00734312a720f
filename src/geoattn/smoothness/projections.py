"""How the queries, keys and values of a captured attention call follow from its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.call import Call
from geoattn.attention.linear_layers import LinearPass
from geoattn.attention.masks import allowed_entries

__all__ = ["Projections", "projections_of"]

_CLOSE = 1e-8  # relative, in float64: two ways to compute one number
_BYTES = 64 << 20  # of the derivatives of a head at a time


@dataclass(frozen=True, eq=False)
class Projections:
    r"""One attention call as a map of its tokens: b samples, h heads, n tokens of width d.

    At token i of a sample, :math:`dq_i = T^q_i Q\,dx_i`, :math:`dk_i = T^k_i K\,dx_i`, :math:`dv_i = V\,dx_i`: what a
    move of the token does to the query (with the scale of the logits in it), key and value of each head. ``query``,
    ``key`` (h, r, d) and ``value`` (h, p, d) are Q, K and V; ``turn_query`` and ``turn_key`` (b, h, n, r, r) are T,
    None for the identity: they hold what depends on the place or on the token itself, such as rotary embeddings and
    norms of queries. ``q``, ``k``, ``v`` (b, h, n, .) are the numbers of the model, ``bias`` (h, r) is that of the
    queries, None when there is a turn. ``output`` (h, e, p) is the projection W that reads the heads, None when none
    was found. ``mask`` (b, n) is True for real tokens. All float64.
    """

    tokens: Float[Tensor, "b n d"]
    query: Float[Tensor, "h r w"]
    key: Float[Tensor, "h r w"]
    value: Float[Tensor, "h p w"]
    q: Float[Tensor, "b h n r"]
    k: Float[Tensor, "b h n r"]
    v: Float[Tensor, "b h n p"]
    turn_query: Float[Tensor, "b h n r r"] | None
    turn_key: Float[Tensor, "b h n r r"] | None
    bias: Float[Tensor, "h r"] | None
    output: Float[Tensor, "h e p"] | None
    causal: bool
    mask: Bool[Tensor, "b n"] | None
    name: str = ""

    @property
    def turned(self) -> bool:
        """Whether queries or keys depend on the place."""
        return self.turn_query is not None or self.turn_key is not None

    def reduced(self) -> Projections:
        """The same heads on the coordinates that they read: at most 2 r + p instead of d; moves keep their length.

        Row spaces of Q, K and V are put in an orthonormal basis, head by head, so ``query``, ``key`` and ``value`` are
        (h, ., w) with w = min(d, 2 r + p), and W becomes the triangular factor that has its singular values. The
        tokens stay as they are.
        """
        rows = torch.cat([self.query, self.key, self.value], dim=1)
        if rows.shape[1] < rows.shape[2]:
            basis = torch.linalg.qr(rows.mT)[0]  # (h, d, w)
            parts = [m @ basis for m in (self.query, self.key, self.value)]
        else:
            parts = [self.query, self.key, self.value]
        output = self.output
        if output is not None and output.shape[1] > output.shape[2]:
            output = torch.linalg.qr(output)[1]
        return replace(self, query=parts[0], key=parts[1], value=parts[2], output=output)


def projections_of(call: Call, layers: Sequence[LinearPass] = (), after: Sequence[LinearPass] = ()) -> Projections:
    """The projections of a call that was captured with ``inputs=True``, in float64 and with gradients.

    Derivatives come from automatic differentiation from the queries, keys and values back to the linear layers that
    made them (``layers``: those in the module of the call), or back to the tokens of the call when there are none; so
    any architecture will do in which a query depends on its own token alone. ``after`` are the layers in which the
    output projection is looked for: the one whose input are the heads side by side.

    An error, with the reason, for cross-attention, caches, masks other than padding and causal, additive biases, sinks,
    and queries, keys or values that mix tokens.
    """
    _check_call(call)
    h = call.shape[1]
    kept = call.stored
    assert kept is not None
    scale = kept.scale if kept.weights is None else _scale_of(call)
    groups = call.key.shape[1]
    each = torch.arange(h) // (h // groups)
    causal = _causal(call)
    base = _base(call, layers)
    token, made, weight = base
    query, turn_query, bias = _derivative(call.query * scale, made, weight, token, call.name, "queries")
    key, turn_key, _ = _derivative(call.key, made, weight, token, call.name, "keys")
    value, turn_value, _ = _derivative(call.value, made, weight, token, call.name, "values")
    if turn_value is not None:
        raise GeoattnError(f"{call.name}: its values are no fixed linear function of its tokens.")
    mask = call.valid.cpu()
    found = Projections(
        token.detach(), query, key[each], value[each], (call.query * scale).detach(), call.key.detach()[:, each],
        call.value.detach()[:, each], turn_query, None if turn_key is None else turn_key[:, each],
        bias if turn_query is None and turn_key is None else None, None, causal,
        None if bool(mask.all()) else mask, call.name,
    )  # fmt: skip
    heads = _check_weights(call, found)
    return replace(found, output=_output(heads, found, after))


def _check_call(call: Call) -> None:
    _, _, n, m = call.shape
    if call.kind != "self" or n != m:
        raise GeoattnError(
            f"{call.name}: {call.kind}-attention of {n} queries on {m} keys is not a map of one sequence."
        )
    if call.query.dtype != torch.float64:
        raise GeoattnError(f"{call.name}: expected a pass in float64; got {call.query.dtype}. Use model.double().")
    if not call.query.requires_grad:
        raise GeoattnError(f"{call.name}: the pass was made without gradients; make it with torch.enable_grad().")


def _causal(call: Call) -> bool:
    """Whether the mask hides the future and nothing else but padding."""
    kept, (b, _, n, m) = call.stored, call.shape
    assert kept is not None
    mask = kept.mask
    if kept.weights is not None:
        weights = call.attention(sample=0, head=0)[0, 0].detach()
        return n > 1 and bool((weights.triu(1) == 0).all())
    if mask.entries is not None and mask.entries.dtype != torch.bool:
        entries = mask.entries.detach()
        if not bool(((entries == 0) | (entries < -500.0)).all()):
            raise GeoattnError(f"{call.name}: its logits have an additive bias, which is not supported here.")
    allowed = allowed_entries(mask, n, m)
    if allowed is None or n == 1:
        return False
    allowed = allowed.expand(b, -1, n, m)[:, 0]
    real = call.valid[:, :, None] & call.valid[:, None, :]
    past = torch.ones(n, m, dtype=torch.bool).tril()
    if bool((allowed | ~real).all()):
        return False
    if bool((allowed == past)[real].all()):
        return True
    raise GeoattnError(f"{call.name}: its mask is neither causal nor padding alone, which is not supported here.")


def _scale_of(call: Call) -> float:
    """The factor of the logits of a map that the model made itself, from ratios of weights."""
    q, k = call.query[0, 0].detach(), call.key[0, 0].detach()
    weights = call.attention(sample=0, head=0)[0, 0].detach()
    logits, logs = q @ k.T, weights.clamp_min(1e-300).log()
    row = int((weights > 0).sum(-1).argmax())
    seen = weights[row] > 1e-12
    x, y = logits[row][seen], logs[row][seen]
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x @ x)) if float(x @ x) > 0 else 1.0


def _base(call: Call, layers: Sequence[LinearPass]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """(tokens, outputs of linear layers that read them, their weights); the tokens of the call when there are none."""
    n = call.shape[2]
    candidates: dict[tuple[int, ...], list[LinearPass]] = {}
    for one in layers:
        if one.input.ndim == 3 and one.input.shape[:2] == (call.shape[0], n) and one.output.requires_grad:
            candidates.setdefault((one.input.data_ptr(), *one.input.shape), []).append(one)
    for group in candidates.values():
        outputs = [one.output for one in group]
        if all(
            any(g is not None for g in torch.autograd.grad(t.sum(), outputs, retain_graph=True, allow_unused=True))
            for t in (call.query, call.key, call.value)
        ):
            return group[0].input, outputs, [one.weight.detach() for one in group]
    if candidates:
        raise GeoattnError(f"{call.name}: queries, keys and values are not made from the same tokens.")
    return call.tokens, [call.tokens], [torch.eye(call.tokens.shape[-1], dtype=torch.float64)]


def _derivative(
    t: Float[Tensor, "b h n r"], made: list[Tensor], weights: list[Tensor], tokens: Tensor, name: str, what: str
) -> tuple[Tensor, Tensor | None, Tensor]:
    """(h, r, d) matrices, (b, h, n, r, r) turns or None, and (h, r) constants of an affine map."""
    b, _, n, r = t.shape
    seen = _check_own_token(t, made, name, what)
    stacked = torch.cat([w for w, used in zip(weights, seen, strict=True) if used])
    matrices, parts = [], []
    for slope, rows in _slopes(t, [m for m, used in zip(made, seen, strict=True) if used], stacked):
        first = slope[0, 0]
        matrices.append(first @ rows)
        if bool(((slope - first).abs() <= _CLOSE * slope.abs().max()).all()):
            parts.append(None)
            continue
        # T_i with T_i Q = slope_i rows, for the Q at the first token; in an orthonormal basis of the row space of rows
        inside = rows @ torch.linalg.qr(rows.mT)[0] if rows.shape[0] < rows.shape[1] else rows
        matrix, wanted = first @ inside, slope @ inside
        turn = slope @ (inside @ torch.linalg.pinv(matrix))
        if not bool(((turn @ matrix - wanted).abs() <= 1e-6 * wanted.abs().max()).all()):
            raise GeoattnError(f"{name}: its {what} are no linear function of its tokens with a turn by place.")
        parts.append(turn)
    matrix = torch.stack(matrices)
    turns = None
    if any(part is not None for part in parts):
        same = torch.eye(r, dtype=torch.float64).expand(b, n, r, r)
        turns = torch.stack([same if part is None else part for part in parts], dim=1)
    constant = (t.detach() - torch.einsum("bnd,hrd->bhnr", tokens.detach(), matrix))[0, :, 0]
    return matrix, turns, constant


def _slopes(
    t: Float[Tensor, "b h n r"], made: list[Tensor], stacked: Float[Tensor, "c d"]
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each head the derivative (b, n, r, k) of its coordinates in k outputs of linear layers, and their weights.

    One pass with a generic direction per head finds the outputs that it reads. Heads that share none, as mostly, are
    then differentiated together: r + h backward passes instead of r h.
    """
    h, r = t.shape[1], t.shape[3]
    generic = torch.zeros(h, h, 1, r, dtype=torch.float64)
    generic[torch.arange(h), torch.arange(h), 0] = torch.linspace(1.0, 2.0, r, dtype=torch.float64).sqrt()
    used = torch.cat([(g != 0).flatten(1, 2).any(1) for g in _pull(t, made, generic)])  # (h, c)
    unit = torch.eye(r, dtype=torch.float64)[:, None, None, :]
    if bool((used.sum(0) <= 1).all()):
        together = torch.cat(list(_pull(t, made, unit))).permute(1, 2, 0, 3)
        for head in range(h):
            yield together[..., used[head]], stacked[used[head]]
        return
    for head in range(h):
        alone = torch.cat(list(_pull(t[:, head : head + 1], made, unit))).permute(1, 2, 0, 3)
        yield alone[..., used[head]], stacked[used[head]]


def _pull(t: Tensor, made: list[Tensor], directions: Tensor) -> Iterator[Float[Tensor, "k b n c"]]:
    """Gradients of t along k directions (k, h or 1, 1, r), the same at every token; some of them at a time."""
    step = max(1, _BYTES // (8 * sum(m.numel() for m in made)))
    for start in range(0, len(directions), step):
        some = directions[start : start + step, None].expand(-1, t.shape[0], t.shape[1], t.shape[2], -1)
        parts = torch.autograd.grad(t, made, some, retain_graph=True, is_grads_batched=True)
        yield torch.cat(parts, dim=-1)


def _check_own_token(t: Float[Tensor, "b h n r"], made: list[Tensor], name: str, what: str) -> list[bool]:
    """Which linear layers t is made from. The gradient of every second token must vanish at the others."""
    odd = torch.arange(t.shape[2]) % 2 == 1
    weights = torch.linspace(1.0, 2.0, t.shape[1] * t.shape[3], dtype=torch.float64).view(t.shape[1], 1, t.shape[3])
    grads = torch.autograd.grad((t * weights)[:, :, odd].sum(), made, retain_graph=True, allow_unused=True)
    if any(g is not None and bool((g[:, ~odd] != 0).any()) for g in grads):
        raise GeoattnError(f"{name}: its {what} mix tokens, so that they are no function of one token each.")
    return [g is not None for g in grads]


def _check_weights(call: Call, p: Projections) -> Float[Tensor, "b n w"]:
    """The heads side by side, from weights that must be those of the model."""
    weights = call.attention().detach()
    logits = p.q @ p.k.transpose(-1, -2)
    n = logits.shape[-1]
    if p.causal:
        logits = logits.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    if p.mask is not None:
        logits = logits.masked_fill(~p.mask[:, None, None, :], float("-inf"))
    made = torch.nan_to_num(logits.softmax(-1))
    if p.mask is not None:
        made = made * p.mask[:, None, :, None]
    if not bool(((made - weights).abs() <= 1e-7).all()):
        raise GeoattnError(
            f"{call.name}: softmax of its queries and keys is not its attention (largest difference"
            f" {float((made - weights).abs().max()):.1e}): a bias, a sink or a mask that is not supported here."
        )
    return (weights @ p.v).transpose(1, 2).flatten(2)


def _output(heads: Float[Tensor, "b n w"], p: Projections, after: Sequence[LinearPass]) -> Any:
    """(h, e, p) weights of the linear layer that reads the heads side by side; None when there is none."""
    real = torch.ones(heads.shape[:2], dtype=torch.bool) if p.mask is None else p.mask
    size = float(heads.abs().max())
    for one in after:
        x = one.input.detach()
        if x.numel() != heads.numel() or x.shape[-1] != heads.shape[-1]:
            continue
        x = x.reshape(heads.shape)
        if bool(((x - heads)[real].abs() <= 1e-7 * size).all()):
            return one.weight.detach().unflatten(1, (p.q.shape[1], -1)).transpose(0, 1).contiguous()
    return None
