"""What an objective hands to the trainer: sums, counts, and the division the trainer decides on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from coord_losses.terms import LossTerm

# Text and coordinate CE share one denominator, so that their sum is the cross-entropy of all supervised
# tokens and the text gradient has the same scale whatever other terms there are.
_DENOMINATORS = {
    "text_ce": "tokens",
    "coord_ce": "tokens",
    "soft_ce": "coord_tokens",
    "w1": "coord_tokens",
    "gate": "coord_tokens",
    "box": "objects",
}


def denominator_of(term: str) -> str:
    """The key (`"tokens"`, `"coord_tokens"` or `"objects"`) of what a term is divided by.

    Raises:
        ValueError: there is no such term.
    """
    if term not in _DENOMINATORS:
        raise ValueError(f"no term {term!r}; the terms are {', '.join(_DENOMINATORS)}")
    return _DENOMINATORS[term]


@dataclass(frozen=True)
class ObjectiveOutput:
    """Undivided terms of one micro-batch on one rank.

    Attributes:
        terms: unweighted `LossTerm` per term that has a weight, each attached to the graph.
        weights: the weight of each term.
        counts: this batch's own denominators, int64: `"tokens"` (supervised, of both kinds),
            `"coord_tokens"`, `"objects"`.
    """

    terms: Mapping[str, LossTerm]
    weights: Mapping[str, float]
    counts: Mapping[str, Tensor]
    _diagnose: Callable[[], dict[str, LossTerm]] = field(repr=False)

    def total(self, denominators: Mapping[str, Tensor | float] | None = None) -> Tensor:
        """`Σ weight · sum / denominator`, 0-d.

        Args:
            denominators: counts over the whole global batch, keyed as `counts`; None takes this batch's own.
                Zero counts as one, so that a batch without objects adds zero and not NaN.

        Raises:
            ValueError: a denominator that a term needs is missing.
        """
        denominators = self.counts if denominators is None else denominators
        parts = []
        for name, term in self.terms.items():
            key = denominator_of(name)
            if key not in denominators:
                raise ValueError(f"denominators lacks {key!r}, which {name} is divided by")
            count = torch.as_tensor(denominators[key], device=term.sum.device).to(term.sum.dtype)
            parts.append(self.weights[name] * term.sum / count.clamp(min=1))
        return torch.stack(parts).sum()

    def diagnostics(self) -> dict[str, LossTerm]:
        """Sums and counts over coordinate positions for logging, without gradient; computed on each call.

        Keys: `"soft_ce"`, `"w1"`, `"gate"` (whether trained on or not), `"coord_vocab_mass"` (full softmax
        mass on coordinate tokens), `"coord_entropy"` (nats, within the coordinate tokens) and
        `"coord_error_bins"` (expected absolute distance from the true bin) and `"coord_token_ce"` (cross-entropy
        over the full vocabulary, per coordinate token). Empty without coordinate tokens.
        """
        with torch.no_grad():
            return self._diagnose()
