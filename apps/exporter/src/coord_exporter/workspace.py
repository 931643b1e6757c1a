"""Memory that the chunks of every tensor are worked in, taken once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Workspace:
    """Named buffers that grow to the largest chunk and are handed out again for every other.

    Fresh memory costs more than the arithmetic done in it: the system hands it out page by page and zeroed.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor [*shape] of whatever values the buffer last held; it is valid until the name is taken again."""
        import torch

        needed = math.prod(shape) * dtype.itemsize
        if name not in self._buffers or len(self._buffers[name]) < needed:
            self._buffers[name] = torch.empty(needed, dtype=torch.uint8)
        return self._buffers[name][:needed].view(dtype).view(shape)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor, to read into or write from."""
    import torch

    return memoryview(tensor.view(-1).view(torch.uint8).numpy())
