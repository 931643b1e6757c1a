"""The one thing losses need of full-vocabulary logits, a chunk of rows at a time.

A row of logits matters to them only through `logsumexp(all) - logsumexp(some)`: with the target as `some`
that is cross-entropy, with the coordinate tokens it is the vocabulary gate. Its gradient,
`softmax(all) - softmax(some)`, can take the place of the logits while they are at hand. (Liger-Kernel, Hsu et
al. 2024, and Cut Cross-Entropy, Wijmans et al. 2024, do this for cross-entropy.)

Shapes: R rows, c rows of a chunk, b of a block of it, H hidden, V vocabulary, J columns of `some`, K of offsets.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from coord_losses.head import Head

_CHUNK_BYTES = 1 << 28
# Products in 16 bits are widened so many bytes at a time: in the cache of a processor, in many threads of a GPU.
_BLOCK_BYTES = {"cpu": 1 << 20}
_OTHER_BLOCK_BYTES = 1 << 26


class Gap(NamedTuple):
    """One chunk; the next one overwrites its gradient.

    Attributes:
        rows: which of the R rows.
        value_c: `logsumexp(all) - logsumexp(some)`, float32 or better.
        grad_cV: its gradient with respect to the logits, times the scale, in the dtype of the head's products.
        offset_grad_cK: the same in the columns of the offsets, float32 or better; None without offsets.
    """

    rows: slice
    value_c: Tensor
    grad_cV: Tensor
    offset_grad_cK: Tensor | None


def gaps(
    head: Head,
    hidden_RH: Tensor,
    some: Tensor | slice,
    chunk_rows: int | None,
    scale_R: Tensor | None = None,
) -> Iterator[Gap]:
    """Walks over the rows in chunks of nearly equal size.

    Args:
        head: gives the logits.
        hidden_RH: what it is applied to.
        some: one target id per row [R], or a contiguous part of the vocabulary for all.
        chunk_rows: rows whose logits exist at a time; None for a quarter GiB of them in float32.
        scale_R: what each row's gradient is multiplied by; None for 1.
    """
    num_rows, width = len(hidden_RH), len(head.weight_VH) * head.wide.itemsize
    if not num_rows:
        return
    limit = chunk_rows or max(1, _CHUNK_BYTES // width)
    size = -(-num_rows // -(-num_rows // limit))
    room_cV = head.weight_VH.new_empty(size, len(head.weight_VH))
    block_bytes = _BLOCK_BYTES.get(hidden_RH.device.type, _OTHER_BLOCK_BYTES)
    block_rows = size if head.dtype == head.wide else max(1, block_bytes // width)
    for start in range(0, num_rows, size):
        rows = slice(start, min(start + size, num_rows))
        logits_cV = head.products(hidden_RH[rows], room_cV[: rows.stop - start])
        added_cK = head.offset_logits(hidden_RH[rows])
        value_c = logits_cV.new_empty(len(logits_cV), dtype=head.wide)
        for first in range(start, rows.stop, block_rows):
            block = slice(first, min(first + block_rows, rows.stop))
            here = slice(block.start - start, block.stop - start)
            wide_bV = logits_cV[here].to(head.wide)
            if added_cK is not None:
                wide_bV[:, head.columns] += added_cK[here]
            value_c[here] = _gap_(wide_bV, some[block] if isinstance(some, Tensor) else some)
            if scale_R is not None:
                wide_bV.mul_(scale_R[block, None])
            if added_cK is not None:
                added_cK[here] = wide_bV[:, head.columns]
            if head.dtype != head.wide:
                logits_cV[here] = wide_bV
        yield Gap(rows, value_c, logits_cV, added_cK)


def _gap_(logits_bV: Tensor, some: Tensor | slice) -> Tensor:
    """Returns the gap [b] and leaves its gradient in place of the logits."""
    if isinstance(some, Tensor):
        some_logsumexp_b = logits_bV.gather(1, some[:, None])[:, 0]
    else:
        some_bJ = logits_bV[:, some].clone()
        some_logsumexp_b = some_bJ.logsumexp(dim=1)
    top_b1 = logits_bV.amax(dim=1, keepdim=True)
    mass_b1 = logits_bV.sub_(top_b1).exp_().sum(dim=1, keepdim=True)
    logits_bV /= mass_b1
    if isinstance(some, Tensor):
        logits_bV.scatter_add_(1, some[:, None], torch.full_like(top_b1, -1.0))
    else:
        logits_bV[:, some] -= some_bJ.softmax(dim=1)
    return (top_b1 + mass_b1.log())[:, 0] - some_logsumexp_b
