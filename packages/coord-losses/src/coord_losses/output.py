"""The result of an objective: the sum and count of each loss term, and their weighted total."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from coord_losses.terms.loss_term import LossTerm
from coord_losses.terms.registry import registered_terms


def denominator_of(term: str) -> str:
    """Return the key (`"tokens"`, `"coord_tokens"` or `"objects"`) of the count that a term is divided by.

    Raises:
        ValueError: if there is no such term

    Example:
        >>> denominator_of("gate")
        'coord_tokens'
    """
    terms = registered_terms()
    if term not in terms:
        raise ValueError(f"no term {term!r}; the terms are {', '.join(terms)}")
    return terms[term].denominator


@dataclass(frozen=True)
class ObjectiveOutput:
    """The undivided loss terms of one micro-batch on one rank.

    Attributes:
        terms: the unweighted, differentiable `LossTerm` of each term that has a weight
        weights: the weight of each term
        counts: this batch's own denominators, int64: `"tokens"` (all supervised tokens), `"coord_tokens"`,
            `"objects"`

    Example:
        >>> import torch
        >>> term = LossTerm(torch.tensor(6.0), torch.tensor(2))
        >>> output = ObjectiveOutput({"text_ce": term}, {"text_ce": 0.5}, {"tokens": term.count}, dict)
        >>> output.total(), output.total({"tokens": 12})  # this batch's own count, the global batch's
        (tensor(1.5000), tensor(0.2500))
    """

    terms: Mapping[str, LossTerm]
    weights: Mapping[str, float]
    counts: Mapping[str, Tensor]
    _diagnose: Callable[[], dict[str, LossTerm]] = field(repr=False)

    def total(self, denominators: Mapping[str, Tensor | float] | None = None) -> Tensor:
        """Return `Σ weight · sum / denominator`, 0-d.

        Args:
            denominators: counts over the global batch, with the keys of `counts`; None for this batch's own counts.
                Zero is replaced by one, so that a batch without objects adds zero and not NaN

        Raises:
            ValueError: if a denominator that a term needs is missing
        """
        return torch.stack(list(self.weighted(denominators).values())).sum()

    def weighted(self, denominators: Mapping[str, Tensor | float] | None = None) -> dict[str, Tensor]:
        """Return `weight · sum / denominator` of each term, 0-d; see `total`, which is their sum."""
        denominators = self.counts if denominators is None else denominators
        weighted = {}
        for name, term in self.terms.items():
            key = denominator_of(name)
            if key not in denominators:
                raise ValueError(f"denominators lacks {key!r}, which {name} is divided by")
            count = denominators[key]
            count = count.to(term.sum).clamp(min=1) if isinstance(count, Tensor) else max(count, 1)
            weighted[name] = self.weights[name] * term.sum / count
        return weighted

    def diagnostics(self) -> dict[str, LossTerm]:
        """Compute sums and counts over coordinate positions for logging, without gradients; recomputed on each call.

        Keys: `"soft_ce"`, `"w1"`, `"gate"` and other terms registered as `diagnostic`, with or without a weight;
        `"coord_vocab_mass"` (probability of all coordinate tokens in the full softmax), `"coord_entropy"` (nats,
        within the coordinate tokens), `"coord_error_bins"` (expected absolute distance from the target bin) and
        `"coord_token_ce"` (cross-entropy over the full vocabulary, per coordinate token). Empty without coordinate
        tokens.
        """
        with torch.no_grad():
            return self._diagnose()
