"""Sums and counts of every term between two log lines, and the names under which they are logged.

Everything is kept as (sum, count) and divided once, over all ranks and micro-batches, so that 1 rank and 2
log the same numbers. Weighted parts add up: total = text + coord_ce + coord (geometry) + coord_diag/loss.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from coord_losses import LossTerm, ObjectiveConfig, ObjectiveOutput, denominator_of

_TERMS = ("text_ce", "coord_ce", "soft_ce", "w1", "gate", "box")
_COUNTS = ("tokens", "coord_tokens", "objects")
# Looked at on log steps only; the first three stand in where the term itself is not trained on.
_LOOKED_AT = (
    "soft_ce",
    "w1",
    "gate",
    "coord_vocab_mass",
    "coord_entropy",
    "coord_error_bins",
    "coord_token_ce",
)
# One vector of a fixed layout, so that no collective depends on what a rank happened to see.
_SLOTS = (
    *_TERMS,
    *_COUNTS,
    *(f"{name}.{part}" for name in _LOOKED_AT for part in ("sum", "count")),
    "fallback_boxes",
    "batches",
)


class StepMetrics:
    """Accumulator for one mode (train or eval); reset by `flush`."""

    def __init__(self, config: ObjectiveConfig, device: torch.device) -> None:
        self._config = config
        self._vector = torch.zeros(len(_SLOTS), dtype=torch.float64, device=device)

    def add(self, output: ObjectiveOutput, diagnostics: dict[str, LossTerm], fallback_boxes: int) -> None:
        """Add one micro-batch."""
        values = {name: term.sum.detach() for name, term in output.terms.items()}
        values |= dict(output.counts)
        for name, seen in diagnostics.items():
            values[f"{name}.sum"], values[f"{name}.count"] = seen
        values |= {"fallback_boxes": fallback_boxes, "batches": 1}
        row = [torch.as_tensor(values.get(name, 0.0), dtype=torch.float64) for name in _SLOTS]
        self._vector += torch.stack([value.to(self._vector.device) for value in row])

    def sums(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """What has been added up since the last flush, over all ranks (see `go_on_from`)."""
        return dict(zip(_SLOTS, reduce(self._vector).tolist(), strict=True))

    def go_on_from(self, sums: dict[str, float]) -> None:
        """Begin with what `sums` returned when a checkpoint was saved."""
        row = [sums.get(name, 0.0) for name in _SLOTS]
        self._vector = torch.tensor(row, dtype=torch.float64, device=self._vector.device)

    def flush(self, reduce: Callable[[torch.Tensor], torch.Tensor], prefix: str) -> dict[str, float]:
        """Names and values since the last flush; empty when nothing was added on any rank.

        Args:
            reduce: sums the vector over ranks (identity on one).
            prefix: `""` while training, `"eval_"` for evaluation.
        """
        sums = self.sums(reduce)
        self._vector.zero_()
        return _named(sums, self._config, prefix) if sums["batches"] else {}


def _named(sums: dict[str, float], config: ObjectiveConfig, prefix: str) -> dict[str, float]:
    mean = {term: sums[term] / max(sums[denominator_of(term)], 1.0) for term in _TERMS}
    weight = config.weights
    part = {term: weight.get(term, 0.0) * mean[term] for term in _TERMS}
    soft = part["soft_ce"] + part["w1"] + part["gate"]
    losses = {
        "total_loss": part["text_ce"] + part["coord_ce"] + part["box"] + soft,
        "text_loss": part["text_ce"],
        "coord_loss": part["box"],
        "coord_ce_loss": part["coord_ce"],
    }
    looked_at = {
        name: mean[name] if name in weight else sums[f"{name}.sum"] / sums[f"{name}.count"]
        for name in _LOOKED_AT
        if name in weight or sums[f"{name}.count"]
    }
    diagnostics = {
        "loss": soft,
        **looked_at,
        "coord_tokens": sums["coord_tokens"],
        "enabled": float(any(name in weight for name in ("soft_ce", "w1", "gate"))),
    }
    if sums["fallback_boxes"]:
        diagnostics["fallback_boxes"] = sums["fallback_boxes"]
    start = prefix or "train_"
    return {f"{start}{name}": value for name, value in losses.items()} | {
        f"{prefix}coord_diag/{name}": value for name, value in diagnostics.items()
    }
