"""The configuration of an objective: loss term weights, temperatures and soft targets."""

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coord_losses.terms.object_weights import ObjectWeights
from coord_losses.terms.registry import Term, registered_terms

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ObjectiveConfig(BaseModel):
    """Weights and options of the loss terms; a term of weight zero is not computed.

    Attributes:
        text_weight: weight of the cross-entropy of text tokens (full vocabulary, no temperature)
        coord_ce_weight: weight of the cross-entropy of coordinate tokens (full vocabulary, no temperature)
        soft_ce_weight: weight of the soft cross-entropy over the coordinate tokens
        w1_weight: weight of Wasserstein-1 over the coordinate tokens
        gate_weight: weight of the vocabulary gate at coordinate positions
        box_weight: weight of the box loss on expected coordinates; for other shapes than boxes four times their mean L1
        alpha_l1: weight of L1 in the box loss (sum over the four sides)
        beta_giou: weight of 1 - GIoU in the box loss
        temperature: softmax temperature of soft CE, W1 and gate
        expectation_temperature: softmax temperature of the expected coordinates in the box loss
        target_sigma: standard deviation of the soft targets, in bins
        target_truncate: half width of the soft targets, in bins
        z_loss_weight: weight of the squared logsumexp of all logits, which keeps them from drifting
        label_smoothing: share of the cross-entropies' targets that is spread over the full vocabulary
        extra_weights: weights of the terms without a field here: `dfl`, `huber`, `diou`, `ciou` and custom terms
            (`register_term`)
        term_options: keyword arguments for the function of each term
        object_weights: factor of each object in its coordinate and box terms: 0.2 / side, within [1/4, 4]
            ("inverse_size"), or 1 / the number of objects in its image ("inverse_count")
        matching: the ground-truth box that an expected box is compared with: that of the same object in the text
            ("sequence"), or the one that `hungarian_pairs` assigns within each image ("hungarian"); coordinate terms
            always use the text
        shape_boxes: whether the box loss of other shapes than boxes adds 1 - GIoU of the boxes around them to the L1
            of their coordinates

    Raises:
        pydantic.ValidationError: (a ValueError) if a value is invalid; names the field and what was expected

    Example:
        >>> ObjectiveConfig.soft(w1_weight=0.5).weights
        {'text_ce': 1.0, 'soft_ce': 1.0, 'w1': 0.5, 'gate': 1.0}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text_weight: Weight = 1.0
    coord_ce_weight: Weight = 0.0
    soft_ce_weight: Weight = 0.0
    w1_weight: Weight = 0.0
    gate_weight: Weight = 0.0
    box_weight: Weight = 0.0
    z_loss_weight: Weight = 0.0
    alpha_l1: Weight = 1.0
    beta_giou: Weight = 1.0
    temperature: Positive = 1.0
    expectation_temperature: Positive = 1.0
    target_sigma: Positive = 2.0
    target_truncate: Annotated[int, Field(ge=0)] = 16
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    extra_weights: Mapping[str, Weight] = Field(default_factory=dict)
    term_options: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    object_weights: ObjectWeights = "none"
    matching: Literal["sequence", "hungarian"] = "sequence"
    shape_boxes: bool = False

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @model_validator(mode="after")
    def _check_terms(self) -> "ObjectiveConfig":
        terms = registered_terms()
        for field in ("extra_weights", "term_options"):
            for name in getattr(self, field):
                if name not in terms:
                    suggestion = "".join(f" (did you mean {term!r}?)" for term in get_close_matches(name, terms, 1))
                    raise ValueError(
                        f"{field}: there is no term {name!r}{suggestion}; the terms are {', '.join(terms)}; call "
                        "register_term before the configuration is made (in YAML: custom.coord_objective.plugins)"
                    )
        for name, options in self.term_options.items():
            _check_options(terms[name], options)
        for name in self.extra_weights:
            if own_field := terms[name].weight_field:
                raise ValueError(f"extra_weights: the weight of {name!r} is the field {own_field}")
        return self

    @model_validator(mode="after")
    def _check_any_weight(self) -> "ObjectiveConfig":
        if not self.weights:
            raise ValueError("every weight is zero, from text_weight to z_loss_weight: nothing would be trained")
        if self.box_weight and not (self.alpha_l1 or self.beta_giou):
            raise ValueError("box_weight is positive but alpha_l1 and beta_giou are both zero")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each term whose weight is not zero."""
        return {
            name: weight
            for name, term in registered_terms().items()
            if (
                weight := getattr(self, term.weight_field)
                if term.weight_field
                else self.extra_weights.get(name, term.default_weight)
            )
        }

    @classmethod
    def soft(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + soft CE + W1 + gate: coordinates are learnt as distributions, without hard CE."""
        return cls(**{"soft_ce_weight": 1.0, "w1_weight": 1.0, "gate_weight": 1.0, **changes})

    @classmethod
    def group_a(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE: plain language modelling, Hugging Face's loss."""
        return cls(**{"coord_ce_weight": 1.0, **changes})

    @classmethod
    def group_b(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + box loss on expected coordinates; nothing teaches the model to emit them (see `vocab_gate`)."""
        return cls(**{"box_weight": 1.0, **changes})

    @classmethod
    def group_c(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE + box loss."""
        return cls(**{"coord_ce_weight": 1.0, "box_weight": 1.0, **changes})

    @classmethod
    def mixed(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE + soft CE + W1 + gate."""
        return cls.soft(**{"coord_ce_weight": 1.0, **changes})


def _check_options(term: Term, options: Mapping[str, Any]) -> None:
    try:
        inspect.signature(term.function).bind(None, **options)
    except TypeError as error:
        raise ValueError(f"term_options: {term.name!r} does not take {dict(options)}: {error}") from None
