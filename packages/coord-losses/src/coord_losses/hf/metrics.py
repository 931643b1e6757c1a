"""Accumulates every loss term between two log lines.

Everything is kept as (sum, count) and divided once, over all ranks and micro-batches, so that the logged values do not
depend on the number of ranks.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from coord_losses.output import ObjectiveOutput, denominator_of
from coord_losses.terms.loss_term import LossTerm
from coord_losses.terms.registry import registered_terms

_COUNTS = ("tokens", "coord_tokens", "objects")


class StepMetrics:
    """Accumulator for one mode (training or evaluation), reset by `flush`.

    The sums are one vector, whose layout depends only on the arguments, so that it is the same on all ranks.

    Args:
        weights: of the terms of the objective (`ObjectiveConfig.weights`)
        device: of the vector
        measured: names of quantities that are measured besides the terms registered as `diagnostic`

    Attributes:
        weights: of the terms
        measured: names of all quantities that are measured
        layout: names of all sums

    Example:
        >>> metrics = StepMetrics({"text_ce": 1.0})
        >>> term = LossTerm(torch.tensor(6.0), torch.tensor(2))
        >>> for _ in range(2):
        ...     metrics.add(ObjectiveOutput({"text_ce": term}, metrics.weights, {"tokens": term.count}, dict), {})
        >>> metrics.means(metrics.flush()), metrics.flush()
        (({'text_ce': 3.0}, {}), {})
    """

    def __init__(
        self, weights: Mapping[str, float], device: torch.device | None = None, measured: Sequence[str] = ()
    ) -> None:
        self.weights = weights
        self.measured = (*(name for name, term in registered_terms().items() if term.diagnostic), *measured)
        self.layout = (
            *weights,
            *_COUNTS,
            *(f"{name}.{part}" for name in self.measured for part in ("sum", "count")),
            "fallback_boxes",
            "batches",
        )
        self._vector = torch.zeros(len(self.layout), dtype=torch.float64, device=device)

    def add(self, output: ObjectiveOutput, measured: Mapping[str, LossTerm], fallback_boxes: int = 0) -> None:
        """Add one micro-batch.

        Args:
            output: its loss terms
            measured: its diagnostics and other quantities; empty if they are not measured
            fallback_boxes: its number of objects without a usable ground-truth box (`ObjectSlots.fallbacks`)
        """
        values: dict[str, Tensor | int] = {name: term.sum.detach() for name, term in output.terms.items()}
        values |= output.counts
        for name, term in measured.items():
            values[f"{name}.sum"], values[f"{name}.count"] = term.sum.detach(), term.count
        values |= {"fallback_boxes": fallback_boxes, "batches": 1}
        row = [torch.as_tensor(values.get(name, 0.0), dtype=torch.float64) for name in self.layout]
        self._vector += torch.stack([value.to(self._vector.device) for value in row])

    def clear(self) -> None:
        """Discard what has been added since the last flush."""
        self._vector.zero_()

    def sums(self, reduce: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
        """Return the sums since the last flush, over all ranks (see `restore`).

        Args:
            reduce: function that sums a tensor over the ranks; None for one rank
        """
        vector = self._vector if reduce is None else reduce(self._vector)
        return dict(zip(self.layout, vector.tolist(), strict=True))

    def restore(self, sums: Mapping[str, float]) -> None:
        """Begin with the result of `sums` at the time a checkpoint was saved."""
        row = [sums.get(name, 0.0) for name in self.layout]
        self._vector = torch.tensor(row, dtype=torch.float64, device=self._vector.device)

    def flush(self, reduce: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
        """Return `sums` and begin again; empty if nothing was added on any rank."""
        sums = self.sums(reduce)
        self.clear()
        return sums if sums["batches"] else {}

    def means(self, sums: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """Return the unweighted mean of each term, and of each quantity that was measured at least once."""
        terms = {name: sums[name] / max(sums[denominator_of(name)], 1.0) for name in self.weights}
        measured = {
            name: sums[f"{name}.sum"] / sums[f"{name}.count"] for name in self.measured if sums[f"{name}.count"]
        }
        return terms, measured
