"""The inputs of the loss terms of a batch, each computed once, and the evaluation of the terms.

Shapes: T text rows, C rows whose target is a coordinate, K coordinate tokens, M objects.
"""
# ruff: noqa: N802  (shape suffixes)

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

import torch
from torch import Tensor

from coord_codec import CoordGrid
from coord_losses.batch import Batch
from coord_losses.config import ObjectiveConfig
from coord_losses.matching import hungarian_pairs
from coord_losses.terms.expectation import expectation
from coord_losses.terms.loss_term import LossTerm
from coord_losses.terms.registry import INPUTS, Need, Term, registered_terms
from coord_losses.terms.shape import boxes_of_shapes
from coord_losses.terms.soft_targets import checked_soft_targets

_FROM_COORD_LOGITS: tuple[Need, ...] = ("coord_logits", "expectation", "box")


class TermError(ValueError):
    """Raised if a loss term's function fails, or does not return one loss per element.

    Example:
        >>> issubclass(TermError, ValueError)
        True
    """


@dataclass(frozen=True)
class TermInputs:
    """The inputs of a loss term's function; `register_term` lists which of them each of its `needs` provides.

    Attributes:
        config: temperatures and options
        grid: maps bins to coordinates
        batch: target bins, and which of the C rows decode which box
        given: the quantities already computed from logits or hidden states, by need

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> from coord_losses import CoordObjective, ObjectiveConfig, register_term
        >>> def bias(inputs):
        ...     return (inputs.expected_C - inputs.true_C).abs()
        >>> term = register_term("bias", bias, needs="expectation", replace=True)
        >>> objective = CoordObjective(ObjectiveConfig(extra_weights={"bias": 1}), CoordVocab(0, CoordGrid(3, 3)))
        >>> objective(torch.zeros(1, 4), torch.tensor([0])).terms["bias"].sum  # expected 1/3, true 0
        tensor(0.3333)
    """

    config: ObjectiveConfig
    grid: CoordGrid
    batch: Batch
    given: Mapping[Need, Tensor]

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of all that is computed: that of the logits, float32 or better; ground truth is converted to it."""
        return reduce(torch.promote_types, (x.dtype for x in self.given.values()), torch.float32)

    def _get(self, need: Need) -> Tensor:
        if need not in self.given:
            raise ValueError(f"the term uses an input that was not computed: register it with {need!r} among its needs")
        return self.given[need]

    @property
    def text_nll_T(self) -> Tensor:
        """Cross-entropy of each text token over the full vocabulary."""
        return self._get("text_rows")

    @property
    def coord_nll_C(self) -> Tensor:
        """Cross-entropy of each coordinate token over the full vocabulary."""
        return self._get("coord_rows")

    @property
    def margin_N(self) -> Tensor:
        """Target logit minus the mean of all logits, for each supervised token."""
        return self._get("margin")

    def smoothed(self, nll_R: Tensor, rows_R: Tensor) -> Tensor:
        """Return cross-entropies against targets smoothed by `config.label_smoothing` (Szegedy et al. 2016).

        `-(1 - ε) log p_t - ε mean log p` is the nll plus `ε · margin`.

        Args:
            nll_R: cross-entropies of some of the supervised rows
            rows_R: the indices of those rows
        """
        epsilon = self.config.label_smoothing
        return nll_R + epsilon * self.margin_N[rows_R] if epsilon else nll_R

    @property
    def gate_C(self) -> Tensor:
        """Negative log of the probability of all coordinate tokens, at `config.temperature`."""
        return self._get("gate")

    @property
    def coord_logits_CK(self) -> Tensor:
        """Logits of the coordinate tokens, float32 or better."""
        return self._get("coord_logits")

    @property
    def bins_C(self) -> Tensor:
        """Target bins."""
        return self.batch.bins_C

    @cached_property
    def true_C(self) -> Tensor:
        """Ground-truth coordinates: of the object's box or shape if the row decodes one, else of the target bin."""
        objects = self.batch.objects
        true_C = self.bins_C.to(self.dtype) / self.grid.scale
        return true_C.index_put((objects.rows_P,), objects.true_P.to(self.dtype))

    @property
    def true_bins_C(self) -> Tensor:
        """Ground-truth coordinates in bins, not rounded, in 0..K-1."""
        return (self.true_C * self.grid.scale).clamp(0, self.grid.bins - 1)

    @cached_property
    def soft_targets_CK(self) -> Tensor:
        """Soft targets around the target bins, see `soft_targets`."""
        logits_CK, config = self.coord_logits_CK, self.config
        return checked_soft_targets(
            self.bins_C, logits_CK.shape[1], config.target_sigma, config.target_truncate, logits_CK.dtype
        )

    @cached_property
    def expected_C(self) -> Tensor:
        """Expected coordinates at `config.expectation_temperature`."""
        return expectation(self.coord_logits_CK, self.grid, self.config.expectation_temperature)

    @property
    def predicted_M4(self) -> Tensor:
        """Expected boxes with unsorted corners; for other geometries the boxes around the expected coordinates."""
        objects = self.batch.objects
        if (coords := objects.coords) is not None:
            return boxes_of_shapes(self.expected_C[coords.rows_P], coords, len(objects))
        return self.expected_C[objects.rows_M4.flatten()].view(-1, 4)

    @property
    def boxes_M4(self) -> Tensor:
        """Ground-truth boxes in the order of the expected boxes they are compared with (`config.matching`)."""
        boxes_M4 = self.batch.objects.boxes_M4.to(self.dtype)
        return boxes_M4 if self.pairs_M is None else boxes_M4[self.pairs_M]

    @cached_property
    def pairs_M(self) -> Tensor | None:
        """Index of the ground-truth box that each expected box is compared with; None for that of the same object."""
        config, objects = self.config, self.batch.objects
        if config.matching == "sequence":
            return None
        if objects.coords is not None:
            raise ValueError("matching is 'hungarian', which pairs boxes, but the objects are shapes; set 'sequence'")
        return hungarian_pairs(
            self.predicted_M4,
            objects.boxes_M4,
            objects.image_M,
            objects.said_M,
            objects.label_M,
            config.alpha_l1,
            config.beta_giou,
        )

    def loss_term(self, term: Term) -> LossTerm:
        """Compute a term and sum it.

        Raises:
            TermError: if the function fails, or does not return one loss per element
        """
        options = self.config.term_options.get(term.name, {})
        try:
            values = term.function(self, **options)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            with_options = f" with options {dict(options)}" if options else ""
            raise TermError(
                f"term {term.name!r}{with_options} raises {type(error).__name__}: {error} "
                f"({Path(frame.filename).name}, line {frame.lineno})"
            ) from error
        num_text, num_coords = len(self.batch.text_rows), len(self.bins_C)
        sizes = {"text token": num_text, "token": num_text + num_coords, "object": len(self.batch.objects)}
        shape, expected = getattr(values, "shape", None), sizes.get(term.element, num_coords)
        if shape != (expected,):
            raise TermError(
                f"term {term.name!r} must return [{expected}], one loss per element of {term.needs[0]!r}, got "
                f"{type(values).__name__ if shape is None else list(shape)}"
            )
        return LossTerm.of(values)


def needs_coord_logits(needs: set[Need]) -> bool:
    """Return whether any of these inputs is computed from the logits of the coordinate tokens."""
    return not needs.isdisjoint(_FROM_COORD_LOGITS)


def needs_of(config: ObjectiveConfig) -> set[Need]:
    """Return the inputs that the terms with a weight need."""
    needs = {need for name in config.weights for need in registered_terms()[name].needs}
    return needs | {"margin"} if config.label_smoothing and needs & {"text_rows", "coord_rows"} else needs


def diagnostic_terms(inputs: TermInputs) -> dict[str, LossTerm]:
    """Return all terms registered as diagnostics that coordinate tokens or objects have."""
    measured = (term for term in registered_terms().values() if term.diagnostic)
    return {
        term.name: inputs.loss_term(term)
        for term in measured
        if all(INPUTS[need].element in ("coordinate", "object") for need in term.needs)
    }
