"""Which terms an objective has, and with what weights."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ObjectiveConfig(BaseModel):
    """Weights and shapes of the terms; a term of weight zero is not computed.

    Attributes:
        text_weight: cross-entropy of text tokens, full vocabulary, no temperature.
        coord_ce_weight: cross-entropy of coordinate tokens, full vocabulary, no temperature.
        soft_ce_weight: soft cross-entropy over the coordinate sub-vocabulary.
        w1_weight: Wasserstein-1 over the coordinate sub-vocabulary.
        gate_weight: vocabulary gate at coordinate positions.
        box_weight: box loss on the expected coordinates.
        alpha_l1: L1 inside the box loss (sum over the four sides).
        beta_giou: 1 - GIoU inside the box loss.
        temperature: of soft CE, W1 and gate.
        expectation_temperature: of the expectation that the box loss reads.
        target_sigma: standard deviation of the soft targets, in bins.
        target_truncate: half width of the soft targets, in bins.

    Raises:
        pydantic.ValidationError: (a ValueError) names the field, and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text_weight: Weight = 1.0
    coord_ce_weight: Weight = 0.0
    soft_ce_weight: Weight = 0.0
    w1_weight: Weight = 0.0
    gate_weight: Weight = 0.0
    box_weight: Weight = 0.0
    alpha_l1: Weight = 1.0
    beta_giou: Weight = 1.0
    temperature: Positive = 1.0
    expectation_temperature: Positive = 1.0
    target_sigma: Positive = 2.0
    target_truncate: Annotated[int, Field(ge=0)] = 16

    @model_validator(mode="after")
    def _something_to_train(self) -> "ObjectiveConfig":
        if not self.weights:
            raise ValueError("every weight is zero, from text_weight to box_weight: nothing would be trained")
        if self.box_weight and not (self.alpha_l1 or self.beta_giou):
            raise ValueError("box_weight is positive but alpha_l1 and beta_giou are both zero")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Weight per term, of the terms that have one."""
        every = {
            "text_ce": self.text_weight,
            "coord_ce": self.coord_ce_weight,
            "soft_ce": self.soft_ce_weight,
            "w1": self.w1_weight,
            "gate": self.gate_weight,
            "box": self.box_weight,
        }
        return {name: weight for name, weight in every.items() if weight}

    @classmethod
    def soft(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + soft CE + W1 + gate: coordinates learnt as distributions, no hard CE on them."""
        return cls(**{"soft_ce_weight": 1.0, "w1_weight": 1.0, "gate_weight": 1.0, **changes})

    @classmethod
    def group_a(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE: plain language modelling, Hugging Face's loss."""
        return cls(**{"coord_ce_weight": 1.0, **changes})

    @classmethod
    def group_b(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + box loss on expected coordinates; nothing teaches the vocabulary (see `vocab_gate`)."""
        return cls(**{"box_weight": 1.0, **changes})

    @classmethod
    def group_c(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE + box loss."""
        return cls(**{"coord_ce_weight": 1.0, "box_weight": 1.0, **changes})

    @classmethod
    def mixed(cls, **changes: Any) -> "ObjectiveConfig":
        """Text CE + coordinate CE + soft CE + W1 + gate."""
        return cls.soft(**{"coord_ce_weight": 1.0, **changes})
