"""The one thing losses need of full-vocabulary logits, a chunk of rows at a time.

A row of logits matters to them only through `logsumexp(all) - logsumexp(some)`: with the target as `some`
that is cross-entropy, with the coordinate tokens it is the vocabulary gate. Its gradient,
`softmax(all) - softmax(some)`, can take the place of the logits while they are at hand. (Liger-Kernel, Hsu et
al. 2024, and Cut Cross-Entropy, Wijmans et al. 2024, do this for cross-entropy.)

Shapes: R rows, c rows of a chunk, H hidden, V vocabulary, J columns of `some`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from coord_losses.head import Head

_CHUNK_BYTES = 1 << 28


class Gap(NamedTuple):
    """One chunk; the next one overwrites its gradient.

    Attributes:
        rows: which of the R rows.
        value_c: `logsumexp(all) - logsumexp(some)`.
        grad_cV: its gradient with respect to the logits, float32 or better.
        spare_cV: room for the same in the dtype of the head's products; `grad_cV` itself where that is its own.
    """

    rows: slice
    value_c: Tensor
    grad_cV: Tensor
    spare_cV: Tensor

    def narrow(self) -> Tensor:
        """The gradient in the dtype of the head's products."""
        return (
            self.grad_cV if self.spare_cV.dtype == self.grad_cV.dtype else self.spare_cV.copy_(self.grad_cV)
        )


def gaps(head: Head, hidden_RH: Tensor, some: Tensor | slice, chunk_rows: int | None) -> Iterator[Gap]:
    """Walks over the rows in chunks of nearly equal size.

    Args:
        head: gives the logits.
        hidden_RH: what it is applied to.
        some: one target id per row [R], or a contiguous part of the vocabulary for all.
        chunk_rows: rows whose logits exist at a time; None for a quarter GiB of them.
    """
    num_rows = len(hidden_RH)
    if not num_rows:
        return
    limit = chunk_rows or max(1, _CHUNK_BYTES // (len(head.weight_VH) * head.wide.itemsize))
    size = -(-num_rows // -(-num_rows // limit))
    room = head.allocate(size)
    for start in range(0, num_rows, size):
        rows = slice(start, min(start + size, num_rows))
        logits_cV = head.logits(hidden_RH[rows], room)
        value_c = _gap_(logits_cV, some[rows] if isinstance(some, Tensor) else some)
        yield Gap(rows, value_c, logits_cV, room.narrow_cV[: len(logits_cV)])


def _gap_(logits_cV: Tensor, some: Tensor | slice) -> Tensor:
    """Returns the gap [c] and leaves its gradient in place of the logits."""
    if isinstance(some, Tensor):
        some_logsumexp_c = logits_cV.gather(1, some[:, None])[:, 0]
    else:
        some_cJ = logits_cV[:, some].clone()
        some_logsumexp_c = some_cJ.logsumexp(dim=1)
    top_c1 = logits_cV.amax(dim=1, keepdim=True)
    mass_c1 = logits_cV.sub_(top_c1).exp_().sum(dim=1, keepdim=True)
    logits_cV /= mass_c1
    if isinstance(some, Tensor):
        logits_cV.scatter_add_(1, some[:, None], torch.full_like(top_c1, -1.0))
    else:
        logits_cV[:, some] -= some_cJ.softmax(dim=1)
    return (top_c1 + mass_c1.log())[:, 0] - some_logsumexp_c
