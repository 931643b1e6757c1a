"""Communication between ranks: a number, a failure, a list. Every rank has to call each function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import distributed

from coord_detect.console import is_first, world_size

_Number = TypeVar("_Number", int, float)


def largest_over_ranks(number: _Number, device: torch.device | str = "cpu") -> _Number:
    """Return the largest of the ranks' numbers."""
    if not _several():
        return number
    value = torch.tensor(number, device=device, dtype=torch.float64 if isinstance(number, float) else torch.int64)
    distributed.all_reduce(value, op=distributed.ReduceOp.MAX)
    return type(number)(value.item())


@contextmanager
def failing_together(device: torch.device | str = "cpu") -> Iterator[None]:
    """Raise on every rank if the block fails on one of them, so that no rank waits for it.

    Raises:
        RuntimeError: on the ranks whose own block did not fail.
    """
    fault = None
    try:
        yield
    except Exception as error:
        fault = error
    failed = largest_over_ranks(int(fault is not None), device)
    if fault is not None:
        raise fault
    if failed:
        raise RuntimeError("it failed on another rank, whose log says why")


def gather_lists(items: list[Any]) -> list[Any]:
    """Return the items of all ranks on the first rank, and an empty list on the others."""
    if not _several():
        return items
    lists: list[list[Any]] | None = [[] for _ in range(world_size())] if is_first() else None
    distributed.gather_object(items, lists)
    return [item for of_rank in lists or () for item in of_rank]


def _several() -> bool:
    return world_size() > 1 and distributed.is_initialized()
