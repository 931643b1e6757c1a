"""The pass over the vocabulary as Triton kernels, which never write logits to the device's memory.

The first kernel computes the logsumexp of the others and the logits of the targets. The second recomputes each tile of
logits and adds its products to the gradients of hidden states, weight and bias with atomic additions, whose order, and
so the last digits, differ from run to run. Tiles in which all gradients are below `gradient_filter` can be skipped, as
in Cut Cross-Entropy (Wijmans et al. 2024): the error of each logit's gradient is then less than that, and the error of
a row's gradient less than `gradient_filter` times the sum of the norms of the weight's rows. The module needs Triton
and is only imported on request.

Shapes: R rows, T of them with a target, H hidden, V vocabulary, K offsets.
"""
# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def, no-untyped-call, attr-defined"
# ruff: noqa: E501  (kernels)

import torch
import triton
import triton.language as tl
from torch import Tensor

from coord_losses.fused.blocks import BlockwiseHead, index_of
from coord_losses.fused.online_softmax import LogSumExps, NLLRows, logit_gradient_

_TILES = {2: (64, 128, 64, 8), 4: (32, 64, 32, 4)}
"""Rows, columns, hidden units and warps of a tile, by element size in bytes."""
_INTERPRETED = (16, 32, 16, 1)


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    """Return the product of two tiles in float32; the interpreter cannot multiply bfloat16."""
    if WIDEN:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _logits(hidden, weight, bias, added, slot, factor, rows, cols, R, V, H, K, cap, BR: tl.constexpr, BV: tl.constexpr,
            BH: tl.constexpr, BIAS: tl.constexpr, OFFSETS: tl.constexpr, CAP: tl.constexpr, WIDEN: tl.constexpr):  # fmt: skip
    """Return a tile of logits [BR, BV] and the slope of its cap."""
    z = tl.zeros((BR, BV), tl.float32)
    rows64, cols64 = rows.to(tl.int64), cols.to(tl.int64)
    for start in range(0, H, BH):
        units = start + tl.arange(0, BH)
        x = tl.load(
            hidden + rows64[:, None] * H + units[None, :], mask=(rows[:, None] < R) & (units[None, :] < H), other=0
        )
        w = tl.load(
            weight + cols64[:, None] * H + units[None, :], mask=(cols[:, None] < V) & (units[None, :] < H), other=0
        )
        z += _dot(x, tl.trans(w), WIDEN)
    if OFFSETS:
        k = tl.load(slot + cols, mask=cols < V, other=-1)
        z += tl.load(added + rows64[:, None] * K + k[None, :], mask=(rows[:, None] < R) & (k[None, :] >= 0), other=0)
    row_factor = tl.load(factor + rows, mask=rows < R, other=1)
    if BIAS:
        z += row_factor[:, None] * tl.load(bias + cols, mask=cols < V, other=0)[None, :]
    slope = tl.full((BR, BV), 1, tl.float32)
    if CAP:
        tanh = 2 * tl.sigmoid(2 * z / (cap * row_factor[:, None])) - 1
        z = cap * row_factor[:, None] * tanh
        slope = 1 - tanh * tanh
    return z, slope


@triton.jit
def _in_set(target, rows, cols, T, first, last):
    """Return whether a column belongs to the set of its row: the target, or all coordinates in rows of the gate."""
    row_target = tl.load(target + rows, mask=rows < T, other=-1)
    gate = (rows[:, None] >= T) & (cols[None, :] >= first) & (cols[None, :] < last)
    return (cols[None, :] == row_target[:, None]) | gate


@triton.jit
def _lse_kernel(hidden, weight, bias, added, slot, factor, target, largest, total, set_logit, R, T, V, H, K, first, last,
                per_split, splits, cap, BR: tl.constexpr, BV: tl.constexpr, BH: tl.constexpr, BIAS: tl.constexpr,
                OFFSETS: tl.constexpr, CAP: tl.constexpr, WIDEN: tl.constexpr):  # fmt: skip
    """Store maximum and sum of exponentials of the others in one part of the vocabulary, and the targets' logits."""
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    split = tl.program_id(1)
    high = tl.full((BR,), -3e38, tl.float32)
    sums = tl.zeros((BR,), tl.float32)
    for block in range(0, per_split):
        cols = (split * per_split + block) * BV + tl.arange(0, BV)
        z, _ = _logits(hidden, weight, bias, added, slot, factor, rows, cols, R, V, H, K, cap, BR, BV, BH, BIAS, OFFSETS,
                           CAP, WIDEN)  # fmt: skip
        inside = _in_set(target, rows, cols, T, first, last)
        hit = inside & (rows[:, None] < T)
        here = tl.sum(hit.to(tl.int32), 1) > 0
        tl.store(set_logit + rows, tl.sum(tl.where(hit, z, 0.0), 1), mask=here)
        z = tl.where(inside | (cols[None, :] >= V), float("-inf"), z)
        new = tl.maximum(high, tl.max(z, 1))
        sums = sums * tl.exp(high - new) + tl.sum(tl.exp(z - new[:, None]), 1)
        high = new
    tl.store(largest + rows * splits + split, high, mask=rows < R)
    tl.store(total + rows * splits + split, sums, mask=rows < R)


@triton.jit
def _gradient_kernel(hidden, weight, bias, added, slot, factor, target, others, set_lse, scale, upstream, grad_hidden,
                     grad_weight, grad_bias, R, T, V, H, K, first, last, row_blocks, cap, min_gradient, BR: tl.constexpr,
                     BV: tl.constexpr, BH: tl.constexpr, BIAS: tl.constexpr, OFFSETS: tl.constexpr, CAP: tl.constexpr, WIDEN: tl.constexpr,
                     TRAINED: tl.constexpr, FILTER: tl.constexpr):  # fmt: skip
    """Add the contribution of one tile of logits to the gradients."""
    # Neighbouring programs use the same columns, so that their rows of the weight are in the cache.
    rows = (tl.program_id(0) % row_blocks) * BR + tl.arange(0, BR)
    cols = (tl.program_id(0) // row_blocks) * BV + tl.arange(0, BV)
    z, slope = _logits(hidden, weight, bias, added, slot, factor, rows, cols, R, V, H, K, cap, BR, BV, BH, BIAS, OFFSETS,
                           CAP, WIDEN)  # fmt: skip
    inside = _in_set(target, rows, cols, T, first, last)
    row = rows < R
    from_others = tl.load(others + rows, mask=row, other=0)
    from_set = tl.load(set_lse + rows, mask=row, other=0)
    share = tl.load(scale + rows, mask=row, other=0)
    z = z - tl.where(inside, from_set[:, None], from_others[:, None])
    grad = tl.exp(z) * slope * share[:, None] * tl.where(inside, -1.0, 1.0)
    grad = tl.where(row[:, None] & (cols[None, :] < V), grad, 0.0)
    wanted = True
    if FILTER:
        wanted = tl.max(tl.max(tl.abs(grad), 1), 0) >= min_gradient
    if wanted:
        grad = grad * tl.load(upstream + rows, mask=row, other=0)[:, None]
        rows64, cols64 = rows.to(tl.int64), cols.to(tl.int64)
        narrow = grad.to(weight.dtype.element_ty)
        if TRAINED and BIAS:
            row_factor = tl.load(factor + rows, mask=row, other=0)
            tl.atomic_add(grad_bias + cols, tl.sum(grad * row_factor[:, None], 0), mask=cols < V)
        for start in range(0, H, BH):
            units = start + tl.arange(0, BH)
            unit = units[None, :] < H
            w = tl.load(weight + cols64[:, None] * H + units[None, :], mask=(cols[:, None] < V) & unit, other=0)
            tl.atomic_add(
                grad_hidden + rows64[:, None] * H + units[None, :], _dot(narrow, w, WIDEN), mask=row[:, None] & unit
            )
            if TRAINED:
                x = tl.load(hidden + rows64[:, None] * H + units[None, :], mask=row[:, None] & unit, other=0)
                tl.atomic_add(grad_weight + cols64[:, None] * H + units[None, :], _dot(tl.trans(narrow), x, WIDEN),
                              mask=(cols[:, None] < V) & unit)  # fmt: skip


class TritonPass:
    """A pass over the vocabulary for some rows.

    Args:
        head: the head with weight, offsets, bias and cap
        rows: all rows; they need not be split into chunks

    Raises:
        ValueError: if the weight's dtype differs from that of the products or is not supported, or there is no GPU
    """

    def __init__(self, head: BlockwiseHead, rows: NLLRows) -> None:
        weight_VH = head.weight_VH
        interpreted = triton.knobs.runtime.interpret
        if weight_VH.dtype != head.dtype or head.dtype == torch.float64:
            raise ValueError(
                f"kernel='triton' needs a weight in the dtype of the products, float32 or half precision: it is "
                f"{weight_VH.dtype}, the products are {head.dtype}; use kernel='torch'"
            )
        if weight_VH.device.type != "cuda" and not interpreted:
            raise ValueError(f"kernel='triton' needs a GPU, the weight is on {weight_VH.device}; use kernel='torch'")
        self.head, self.rows = head, rows
        self.tile = _INTERPRETED if interpreted else _TILES[weight_VH.element_size()]
        self.weight_VH, self.hidden_RH = weight_VH.contiguous(), rows.hidden_RH.to(head.dtype).contiguous()
        self.factor_R = rows.factor_R1.flatten().contiguous()
        placeholder = self.factor_R.new_zeros(1)
        self.bias_V = placeholder if head.bias_V is None else head.bias_V.contiguous()
        self.added_RK, self.slot_V = placeholder, placeholder.int()
        added_RK = head.offset_logits(rows.hidden_RH)
        if added_RK is not None:
            self.added_RK = added_RK.contiguous()
            self.slot_V = torch.full((len(weight_VH),), -1, dtype=torch.int32, device=weight_VH.device)
            self.slot_V[index_of(head.columns)] = torch.arange(
                added_RK.shape[1], dtype=torch.int32, device=weight_VH.device
            )

    def _common(self) -> tuple[dict[str, object], int, int]:
        block_rows, block_columns, units, warps = self.tile
        head, (vocab_size, hidden_size) = self.head, self.weight_VH.shape
        arguments = {
            "hidden": self.hidden_RH, "weight": self.weight_VH, "bias": self.bias_V, "added": self.added_RK,
            "slot": self.slot_V, "factor": self.factor_R, "target": self.rows.targets_T, "R": len(self.hidden_RH),
            "T": len(self.rows.targets_T), "V": vocab_size, "H": hidden_size, "K": self.added_RK.shape[-1],
            "first": self.rows.coord.start, "last": self.rows.coord.stop, "cap": float(head.cap or 1), "BR": block_rows,
            "BV": block_columns, "BH": units, "BIAS": head.bias_V is not None, "OFFSETS": head.offsets_KH is not None,
            "CAP": head.cap is not None, "WIDEN": triton.knobs.runtime.interpret, "num_warps": warps,
        }  # fmt: skip
        return arguments, triton.cdiv(len(self.hidden_RH), block_rows), triton.cdiv(vocab_size, block_columns)

    def set_logits(self) -> Tensor:
        """Return the logits of the coordinate tokens in the rows of the gate [G, J]."""
        gate = slice(len(self.rows.targets_T), None)
        return self.head.final_logits(self.rows.hidden_RH[gate], self.rows.factor_R1[gate], self.rows.coord)

    def log_sum_exps(self) -> LogSumExps:
        """Return the logsumexps of each row."""
        arguments, row_blocks, column_blocks = self._common()
        splits = max(1, min(column_blocks, triton.cdiv(512, max(1, row_blocks))))
        per_split = triton.cdiv(column_blocks, splits)
        largest_RS = self.factor_R.new_empty(len(self.hidden_RH), splits)
        total_RS, set_R = torch.empty_like(largest_RS), torch.empty_like(self.factor_R)
        if len(set_R):
            _lse_kernel[(row_blocks, splits)](
                largest=largest_RS, total=total_RS, set_logit=set_R, per_split=per_split, splits=splits, **arguments
            )
            set_R[len(self.rows.targets_T) :] = self.set_logits().logsumexp(dim=1)
        return LogSumExps((largest_RS + total_RS.log()).logsumexp(dim=1), set_R)

    def gradients(
        self, lse: LogSumExps, upstream_R: Tensor, grad_VH: Tensor | None = None, grad_V: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Add the gradients of weight and bias to `grad_VH` and `grad_V` if given.

        Args:
            lse: result of `log_sum_exps`
            upstream_R: gradient of the total by each row's nll
            grad_VH: float32 gradient of the weight; None for a frozen weight
            grad_V: float32 gradient of the bias, together with `grad_VH`

        Returns:
            The gradient of the hidden states [R, H], and that of the offset logits [R, K]; None without offsets.
        """
        arguments, row_blocks, column_blocks = self._common()
        grad_RH = torch.zeros_like(self.hidden_RH, dtype=torch.float32)
        min_gradient = self.rows.spec.gradient_filter
        placeholder = self.factor_R.new_zeros(1)
        if len(grad_RH):
            _gradient_kernel[(row_blocks * column_blocks,)](
                others=lse.others_R, set_lse=lse.set_R, scale=lse.others_prob, upstream=upstream_R.contiguous(),
                grad_hidden=grad_RH, grad_weight=placeholder if grad_VH is None else grad_VH,
                grad_bias=placeholder if grad_V is None else grad_V, row_blocks=row_blocks, min_gradient=min_gradient,
                TRAINED=grad_VH is not None, FILTER=min_gradient > 0, **arguments,
            )  # fmt: skip
        if self.head.offsets_KH is None:
            return grad_RH, None
        offset_RK = self.head.final_logits(self.rows.hidden_RH, self.rows.factor_R1, self.head.columns)
        logit_gradient_(self.head, offset_RK, self.head.columns, self.rows, lse, upstream_R)
        return grad_RH + offset_RK @ self.head.offsets_KH, offset_RK
