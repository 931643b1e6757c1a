"""The configuration of an objective: loss term weights, temperatures and soft targets."""

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, model_validator

from coord_losses.terms.registry import Term, registered_terms
from coord_losses.terms.weights import TermWeights, Weight

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


PresetT = TypeVar("PresetT", bound=Callable[..., Any])
_PRESETS: dict[str, str] = {}


def _listed(preset: PresetT) -> PresetT:
    """Add a preset to `ObjectiveConfig.presets`."""
    _PRESETS[preset.__name__] = (preset.__doc__ or "").splitlines()[0]
    return preset


class ObjectiveConfig(TermWeights):
    """Weights and options of the loss terms; a term of weight zero is not computed.

    The weights with a field of their own are those of `TermWeights`: `text_weight` (1 by default), `coord_ce_weight`,
    `soft_ce_weight`, `w1_weight`, `gate_weight` and `box_weight` (0 by default).

    Attributes:
        alpha_l1: weight of L1 in the box loss (sum over the four sides)
        beta_giou: weight of 1 - GIoU in the box loss
        temperature: softmax temperature of soft CE, W1 and gate
        expectation_temperature: softmax temperature of the expected coordinates in the box loss
        target_sigma: standard deviation of the soft targets, in bins
        target_truncate: half width of the soft targets, in bins
        label_smoothing: share of the cross-entropies' targets that is spread over the full vocabulary
        extra_weights: weights of the terms without a field (`register_term`)
        term_options: keyword arguments for the function of each term
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

    alpha_l1: Weight = 1.0
    beta_giou: Weight = 1.0
    temperature: Positive = 1.0
    expectation_temperature: Positive = 1.0
    target_sigma: Positive = 2.0
    target_truncate: Annotated[int, Field(ge=0)] = 16
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    extra_weights: Mapping[str, Weight] = Field(default_factory=dict)
    term_options: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    matching: Literal["sequence", "hungarian"] = "sequence"
    shape_boxes: bool = False

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @model_validator(mode="after")
    def _check_terms(self) -> "ObjectiveConfig":
        terms = {name: term for name, term in registered_terms().items() if term.trainable}
        for field in ("extra_weights", "term_options"):
            for name in getattr(self, field):
                if name not in terms:
                    suggestion = "".join(f" (did you mean {term!r}?)" for term in get_close_matches(name, terms, 1))
                    raise ValueError(
                        f"{field}: there is no term {name!r}{suggestion}; the terms are {', '.join(terms)}; call "
                        "register_term before the configuration is made (in YAML: plugins)"
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
            names = ", ".join([*TermWeights.model_fields, "extra_weights"])
            raise ValueError(f"every weight is zero ({names}): nothing would be trained")
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
    def presets(cls) -> dict[str, str]:
        """Return the names of the presets, which are methods of this class, and what each trains.

        Example:
            >>> ObjectiveConfig.presets()["group_a"]
            "Text CE + coordinate CE: plain language modelling, Hugging Face's loss."
        """
        return dict(_PRESETS)

    @classmethod
    @_listed
    def soft(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + soft CE + W1 + gate: coordinates are learnt as distributions, without hard CE."""
        return cls(**{"soft_ce_weight": 1.0, "w1_weight": 1.0, "gate_weight": 1.0, **changes})

    @classmethod
    @_listed
    def group_a(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE: plain language modelling, Hugging Face's loss."""
        return cls(**{"coord_ce_weight": 1.0, **changes})

    @classmethod
    @_listed
    def group_b(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + box loss on expected coordinates; nothing teaches the model to emit them (see `vocab_gate`)."""
        return cls(**{"box_weight": 1.0, **changes})

    @classmethod
    @_listed
    def group_c(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE + box loss."""
        return cls(**{"coord_ce_weight": 1.0, "box_weight": 1.0, **changes})

    @classmethod
    @_listed
    def mixed(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE + soft CE + W1 + gate."""
        return cls.soft(**{"coord_ce_weight": 1.0, **changes})


def _check_options(term: Term, options: Mapping[str, Any]) -> None:
    try:
        inspect.signature(term.function).bind(None, **options)
    except TypeError as error:
        raise ValueError(f"term_options: {term.name!r} does not take {dict(options)}: {error}") from None
