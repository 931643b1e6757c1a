"""The `custom:` section: coordinate tokens, loss terms, offsets, and the objective built from them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, ValidationInfo, field_validator, model_validator

from coord_adapter import CoordOffsetConfig
from coord_codec import InputError
from coord_detect.settings.base import Section
from coord_detect.settings.rules import Rule, first_contradiction, value_of
from coord_detect.settings.sections import Coordinates, CoordTokens

if TYPE_CHECKING:
    from coord_losses import ObjectiveConfig

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CoordTokensConfig(CoordTokens):
    """Whether coordinates are tokens, and whether ms-swift may normalise boxes."""

    skip_bbox_norm: bool = Field(
        True, description="prevent ms-swift from normalising boxes, which are in the target text already"
    )

    @field_validator("skip_bbox_norm")
    @classmethod
    def _boxes_are_text(cls, value: bool) -> bool:
        if not value:
            raise ValueError(
                "custom.coord_tokens.skip_bbox_norm is false, but there is nothing to normalise: boxes are written "
                "into the target text before ms-swift processes it; leave it true"
            )
        return value


class CoordSoftCeW1Config(Section):
    """Soft cross-entropy, Wasserstein-1 and the vocabulary gate over coordinate tokens."""

    enabled: bool = Field(False, description="add the three soft terms to the objective")
    soft_ce_weight: Weight = Field(1.0, description="weight of cross-entropy against soft targets around the true bin")
    w1_weight: Weight = Field(1.0, description="weight of the Wasserstein-1 distance to the soft targets")
    gate_weight: Weight = Field(
        1.0,
        description="weight of the vocabulary gate, which penalises probability mass on other tokens at coordinate "
        "positions",
    )
    temperature: Positive = Field(1.0, description="temperature of the logits in the soft terms")
    target_sigma: Positive = Field(2.0, description="standard deviation of the soft targets in bins")
    target_truncate: PositiveInt = Field(16, description="soft targets are 0 beyond this distance in bins")


class CoordObjectiveConfig(Section):
    """Cross-entropy on coordinates, the box loss on the expected box, and further loss terms."""

    use_coord_ce: bool = Field(False, description="add cross-entropy on coordinate tokens (group A)")
    use_coordexp_loss: bool = Field(False, description="decode the expected box; requires `use_geom_loss` (group B)")
    use_geom_loss: bool = Field(False, description="add the L1 and GIoU loss of the expected box (group B)")
    lambda_coord: Weight = Field(1.0, description="weight of the box loss")
    lambda_coord_ce: Weight = Field(1.0, description="weight of cross-entropy on coordinate tokens")
    alpha_l1: Weight = Field(1.0, description="weight of L1, summed over the four sides, within the box loss")
    beta_giou: Weight = Field(1.0, description="weight of 1 - GIoU within the box loss")
    expectation_temperature: Positive = Field(1.0, description="temperature of the logits in the expected box")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of the cross-entropies' targets, of text and coordinates, spread over the vocabulary"
    )
    extra_weights: dict[str, Weight] = Field(
        default_factory=dict, description="weights of the terms that plugins register, by name"
    )
    term_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="keywords for the function of a term, by term, e.g. `mine: {power: 2}`"
    )
    matching: Literal["sequence", "hungarian"] = Field(
        "sequence",
        description="the ground-truth box that an expected box is compared with: that of the same object in the text, "
        "or the one assigned by the matching of least cost within the image (L1, 1 - GIoU, another label); boxes only, "
        "since polygons with different numbers of vertices have no common coordinates to compare",
    )
    shape_boxes: bool = Field(
        False,
        description="for a `data.geometry` other than box: add 1 - GIoU of the boxes around the shapes to the L1 loss "
        "of their coordinates",
    )


class CustomConfig(Coordinates):
    """Everything under `custom:`; `.objective` is the configuration of `coord_losses`."""

    coord_tokens: CoordTokensConfig = Field(
        default_factory=CoordTokensConfig, description="coordinates as tokens or as plain text"
    )
    coord_soft_ce_w1: CoordSoftCeW1Config = Field(
        default_factory=CoordSoftCeW1Config, description="the soft terms: cross-entropy, Wasserstein-1 and gate"
    )
    coord_objective: CoordObjectiveConfig = Field(
        default_factory=CoordObjectiveConfig, description="cross-entropy on coordinates, and the box loss"
    )
    coord_offset: CoordOffsetConfig = Field(
        default_factory=CoordOffsetConfig, description="trainable offsets of the coordinate rows under LoRA"
    )

    @model_validator(mode="before")
    @classmethod
    def _offsets_alone_train_by_cross_entropy(cls, values: Any) -> Any:
        """Train coordinates by cross-entropy, as plain fine-tuning does, if offsets are set but no loss term is."""
        if not isinstance(values, dict) or {"coord_soft_ce_w1", "coord_objective"} & set(values):
            return values
        offset, tokens = values.get("coord_offset"), values.get("coord_tokens")
        on = offset.get("enabled") if isinstance(offset, dict) else getattr(offset, "enabled", False)
        as_text = tokens.get("enabled") is False if isinstance(tokens, dict) else False
        return values if not on or as_text else {**values, "coord_objective": {"use_coord_ce": True}}

    @model_validator(mode="after")
    def _flags_agree(self, info: ValidationInfo) -> CustomConfig:
        trains = (info.context or {}).get("trains", True)  # inference needs no objective
        whole = {"custom": self}
        if problem := first_contradiction(whole, _FLAG_RULES, _TRAINED_RULES if trains else (), _WEIGHT_RULES):
            raise ValueError(problem)
        return self

    @property
    def trains_coordinates(self) -> bool:
        """Whether any coordinate term has a weight above 0."""
        return any((self.weights | self.coord_objective.extra_weights).values())

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every term that is switched on by a flag; 0 for those that are switched off."""
        rows = {name: (getattr(self, section), key, switch) for name, (section, key, switch) in _TERMS.items()}
        return {name: getattr(s, key) if getattr(s, switch) else 0.0 for name, (s, key, switch) in rows.items()}

    @property
    def objective(self) -> ObjectiveConfig:
        """The weights of every term; terms that are switched off have weight 0 and are not computed.

        Raises:
            InputError: a weight is given for an unknown term.
        """
        from coord_losses import ObjectiveConfig  # imports torch, which is slow and not needed to check a configuration

        flags, soft = self.coord_objective, self.coord_soft_ce_w1
        shared = flags.model_dump(include=flags.model_fields_set & ObjectiveConfig.model_fields.keys())
        of_soft_terms = soft.model_dump(include={"temperature", "target_sigma", "target_truncate"})
        try:
            return ObjectiveConfig(**self.weights, **shared, **of_soft_terms)
        except ValidationError as error:
            wrong = error.errors()[0]["msg"].removeprefix("Value error, ")
            keys = {name: f"custom.{section}.{key}" for name, (section, key, _) in _TERMS.items()}
            wrong = re.sub(r"the field (\w+)", lambda found: keys.get(found[1], "1, always"), wrong)
            raise InputError(f"custom.coord_objective.{wrong}") from None

    @property
    def loss_in_words(self) -> str:
        """The loss terms with their weights, for console, manifest and report."""
        objective = self.objective
        terms = ", ".join(f"{name} {weight:g}" for name, weight in objective.weights.items())
        smoothing = objective.label_smoothing
        return terms + (f"; label smoothing {smoothing:g}" if smoothing else "")


_TERMS = {
    "coord_ce_weight": ("coord_objective", "lambda_coord_ce", "use_coord_ce"),
    "box_weight": ("coord_objective", "lambda_coord", "use_geom_loss"),
    **{name: ("coord_soft_ce_w1", name, "enabled") for name in ("soft_ce_weight", "w1_weight", "gate_weight")},
}
"""Section, weight and switch of each field of `ObjectiveConfig`."""

_TERM_FLAGS = (
    "custom.coord_soft_ce_w1.enabled",
    "custom.coord_objective.use_coord_ce",
    "custom.coord_objective.use_geom_loss",
    "custom.coord_objective.extra_weights",
)
"""The keys that switch coordinate terms on."""

_FLAG_RULES = (
    *(
        Rule(
            lambda c, on=on, off=off: (
                getattr(c["custom"].coord_objective, on) and not getattr(c["custom"].coord_objective, off)
            ),
            (f"custom.coord_objective.{on}", f"custom.coord_objective.{off}"),
            "the box loss needs the expected box, and the expected box has no other use; set both or neither",
        )
        for on, off in (("use_geom_loss", "use_coordexp_loss"), ("use_coordexp_loss", "use_geom_loss"))
    ),
    *(
        Rule(
            lambda c, key=key: bool(value_of(c, key)) and not c["custom"].coord_tokens.enabled,
            ("custom.coord_tokens.enabled", key),
            "without coordinate tokens the numbers are plain text and only the text loss applies; change one of the "
            "two",
        )
        for key in (*_TERM_FLAGS, "custom.coord_offset.enabled")
    ),
)
_TRAINED_RULES = (
    Rule(
        lambda c: c["custom"].coord_tokens.enabled and not any(value_of(c, key) for key in _TERM_FLAGS),
        ("custom.coord_tokens.enabled", "custom.coord_soft_ce_w1.enabled"),
        "nothing trains the coordinates; set custom.coord_soft_ce_w1.enabled: true, or one of "
        "custom.coord_objective.use_coord_ce, extra_weights, and use_geom_loss with use_coordexp_loss",
    ),
    Rule(
        lambda c: c["custom"].coord_tokens.enabled and not c["custom"].trains_coordinates,
        ("custom.coord_tokens.enabled",),
        "every weight of the coordinate terms that are switched on is 0 (custom.coord_objective.lambda_coord, "
        "lambda_coord_ce, custom.coord_soft_ce_w1.*_weight); raise one of them",
    ),
)
_WEIGHT_RULES = (
    Rule(
        lambda c: (
            c["custom"].weights["box_weight"] > 0
            and not (c["custom"].coord_objective.alpha_l1 or c["custom"].coord_objective.beta_giou)
        ),
        ("custom.coord_objective.use_geom_loss", "custom.coord_objective.alpha_l1", "custom.coord_objective.beta_giou"),
        "raise one of the two weights, or switch the box loss off",
    ),
)

CUSTOM_RULES = (
    Rule(
        lambda c: c.custom.coord_offset.enabled and c.training.get("tuner_type", "lora") != "lora",
        ("custom.coord_offset.enabled", "training.tuner_type"),
        "the offsets are part of a PEFT adapter; set training.tuner_type: lora, or switch the offsets off (full "
        "training learns the rows)",
    ),
    Rule(
        lambda c: c.data.shape.is_box and c.custom.coord_objective.shape_boxes,
        ("custom.coord_objective.shape_boxes", "data.geometry"),
        "the box loss has GIoU already; remove shape_boxes",
    ),
    Rule(
        lambda c: not c.data.shape.has_extent and c.custom.coord_objective.shape_boxes,
        ("custom.coord_objective.shape_boxes", "data.geometry"),
        "such a shape has no box around it; remove shape_boxes",
    ),
    Rule(
        lambda c: not c.data.shape.is_box and c.custom.coord_objective.matching == "hungarian",
        ("custom.coord_objective.matching", "data.geometry"),
        "it matches boxes only: shapes with different numbers of coordinates have no distance that could be trained; "
        "set sequence",
    ),
)
"""Contradictions of the section `custom` with others."""
