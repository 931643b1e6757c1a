"""Accumulates every loss term between two log lines, and computes gradient norms.

Everything is kept as (sum, count) and divided once, over all ranks and micro-batches, so that the logged values do
not depend on the number of ranks. The total is the sum of the weighted text, coord_ce and coord (geometry) losses
and of coord_diag/loss, which includes every other term. New terms of the objective need no change here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import torch

from coord_losses import LossTerm, ObjectiveConfig, ObjectiveOutput, denominator_of, registered_terms

_COUNTS = ("tokens", "coord_tokens", "objects")
DIAGNOSTICS = tuple(name for name, term in registered_terms().items() if term.diagnostic and not term.trainable)
"""Quantities that are measured on log steps and never trained."""


class StepMetrics:
    """Accumulator for one mode (training or evaluation); reset by `flush`."""

    def __init__(self, config: ObjectiveConfig, device: torch.device) -> None:
        self._weights = config.weights
        self._diagnostics = tuple(name for name, term in registered_terms().items() if term.diagnostic)
        # One vector whose layout depends only on the configuration, so that it is the same on all ranks.
        self._slots = (
            *self._weights,
            *_COUNTS,
            *(f"{name}.{part}" for name in self._diagnostics for part in ("sum", "count")),
            "fallback_boxes",
            "batches",
        )
        self._vector = torch.zeros(len(self._slots), dtype=torch.float64, device=device)

    def add(self, output: ObjectiveOutput, diagnostics: dict[str, LossTerm], fallback_boxes: int) -> None:
        """Add one micro-batch."""
        values = {name: term.sum.detach() for name, term in output.terms.items()}
        values |= dict(output.counts)
        for name, term in diagnostics.items():
            values[f"{name}.sum"], values[f"{name}.count"] = term
        values |= {"fallback_boxes": fallback_boxes, "batches": 1}
        row = [torch.as_tensor(values.get(name, 0.0), dtype=torch.float64) for name in self._slots]
        self._vector += torch.stack([value.to(self._vector.device) for value in row])

    def clear(self) -> None:
        """Discard what has been added since the last flush."""
        self._vector.zero_()

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the names that `flush` always returns, whatever is added."""
        return tuple(self._log_line(dict.fromkeys(self._slots, 0.0), prefix))

    def sums(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """Return the sums since the last flush, over all ranks (see `restore`)."""
        return dict(zip(self._slots, reduce(self._vector).tolist(), strict=True))

    def restore(self, sums: dict[str, float]) -> None:
        """Begin with the result of `sums` at the time a checkpoint was saved."""
        row = [sums.get(name, 0.0) for name in self._slots]
        self._vector = torch.tensor(row, dtype=torch.float64, device=self._vector.device)

    def flush(self, reduce: Callable[[torch.Tensor], torch.Tensor], prefix: str) -> dict[str, float]:
        """Return names and values since the last flush; empty if nothing was added on any rank.

        Args:
            reduce: sums the vector over ranks (identity on one)
            prefix: `""` while training, `"eval_"` for evaluation
        """
        sums = self.sums(reduce)
        self.clear()
        return self._log_line(sums, prefix) if sums["batches"] else {}

    def _log_line(self, sums: dict[str, float], prefix: str) -> dict[str, float]:
        weights = self._weights
        mean = {term: sums[term] / max(sums[denominator_of(term)], 1.0) for term in weights}
        weighted = {term: weight * mean[term] for term, weight in weights.items()}
        terms = registered_terms()
        # Terms with a name of their own; the weighted sum of the others is `coord_diag/loss`.
        losses = {term.loss_key: weighted.get(name, 0.0) for name, term in terms.items() if term.loss_key}
        others = [name for name in weights if not terms[name].loss_key]
        distribution_loss = sum((weighted[name] for name in others), start=0.0)
        measured = {
            name: sums[f"{name}.sum"] / sums[f"{name}.count"]
            for name in self._diagnostics
            if name not in weights and sums[f"{name}.count"]
        }
        diagnostics = {
            "loss": distribution_loss,
            **{terms[name].log_key: mean[name] for name in others},
            **measured,
            "coord_tokens": sums["coord_tokens"],
            "enabled": float(bool(others)),
        }
        if sums["fallback_boxes"]:
            diagnostics["fallback_boxes"] = sums["fallback_boxes"]
        start = prefix or "train_"
        total = {"total_loss": sum(losses.values()) + distribution_loss}
        return {f"{start}{name}": value for name, value in (total | losses).items()} | {
            f"{prefix}coord_diag/{name}": value for name, value in diagnostics.items()
        }


def term_gradient_norms(
    output: ObjectiveOutput,
    parameters: Iterable[torch.nn.Parameter],
    denominators: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, float]:
    """Return the L2 norm of the gradient of `weight · sum / denominator`, by term, before clipping.

    It takes one extra backward pass per term and keeps the graph for the training step. With gradient accumulation or
    several ranks it is the share of this micro-batch on this rank.

    Args:
        output: attached to the graph
        parameters: of the model; frozen ones are skipped
        denominators: as for `ObjectiveOutput.total`
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    counts = output.counts if denominators is None else denominators
    norms = {}
    for name, term in output.terms.items():
        share = output.weights[name] * term.sum / torch.as_tensor(counts[denominator_of(name)]).clamp(min=1)
        gradients = torch.autograd.grad(share, trained, retain_graph=True, allow_unused=True)
        squares = [gradient.float().pow(2).sum() for gradient in gradients if gradient is not None]
        norms[name] = float(torch.stack(squares).sum().sqrt()) if squares else 0.0
    return norms


def find_overfitting(lines: Iterable[Mapping[str, float]], evaluations: int) -> str | None:
    """Return a sentence when the evaluation loss rose at each of the last evaluations while the training loss fell.

    Args:
        lines: of metrics.jsonl
        evaluations: number of consecutive rises required
    """
    points: list[tuple[int, float, float | None]] = []
    train = None
    for line in lines:
        train = line.get("train_total_loss", train)
        if "eval_total_loss" in line:
            points.append((int(line["step"]), line["eval_total_loss"], train))
    last = points[-evaluations - 1 :]
    if len(last) <= evaluations or any(after[1] <= before[1] for before, after in pairwise(last)):
        return None
    first, end = last[0], last[-1]
    if first[2] is None or end[2] is None or end[2] >= first[2]:
        return None
    best = min(points, key=lambda point: point[1])
    return (
        f"overfitting: from step {first[0]} to {end[0]} the evaluation loss rose from {first[1]:.3f} to {end[1]:.3f} "
        f"while the training loss fell from {first[2]:.3f} to {end[2]:.3f}; it was lowest ({best[1]:.3f}) at step "
        f"{best[0]}"
    )
