"""`Captured`: a function of tensors, recorded as a CUDA graph for each shape of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Captured:
    """Replays the operations of a function, so that the host launches one graph in place of thousands of operations.

    The first call with arguments of a shape runs the function twice and records it. What it returns is overwritten by
    the next call.

    Args:
        run: takes tensors or None, and settings by name; it reads nothing back from the device, every other tensor that
            it uses keeps its place, and running it again with the same arguments changes nothing
    """

    def __init__(self, run: Callable[..., torch.Tensor]) -> None:
        self._run = run
        self._recorded: dict[Any, tuple[torch.cuda.CUDAGraph, list[torch.Tensor | None], torch.Tensor]] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, *arguments: torch.Tensor | None, **settings: Any) -> torch.Tensor:
        """Return what the function returns."""
        key = (*(None if a is None else a.shape for a in arguments), *settings.items())
        if key not in self._recorded:
            self._recorded[key] = self._record(arguments, settings)
        graph, held, result = self._recorded[key]
        for place, argument in zip(held, arguments, strict=True):
            if place is not None and argument is not None:
                place.copy_(argument)
        graph.replay()
        return result

    def _record(
        self, arguments: tuple[torch.Tensor | None, ...], settings: dict[str, Any]
    ) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor | None], torch.Tensor]:
        held = [None if argument is None else argument.clone() for argument in arguments]
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # libraries choose their kernels and set up their memory before the recording
            for _ in range(2):
                self._run(*held, **settings)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            result = self._run(*held, **settings)
        return graph, held, result
