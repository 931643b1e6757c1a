"""Replaces the forward pass of a model's head for the duration of one call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def replaced_forward(head: nn.Module, forward: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Make a module call `forward` within this context; hooks, of sharded weights for example, still run around it.

    Args:
        head: the module
        forward: called with the module's input

    Yields:
        The module's own forward pass.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 2)
        >>> with replaced_forward(layer, lambda x: x + 1):
        ...     layer(torch.zeros(1))
        tensor([1.])
        >>> layer(torch.zeros(2)).shape
        torch.Size([2])
    """
    module: Any = head
    own, on_instance = module.forward, module.__dict__.get("forward")
    module.forward = forward
    try:
        yield own
    finally:
        if on_instance is None:
            del module.forward
        else:  # accelerate, for example, sets one on the instance
            module.forward = on_instance
