"""The `custom.*` switches of the specification, and the one objective that they resolve to."""

from __future__ import annotations

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from coord_adapter import CoordOffsetConfig
from coord_losses import ObjectiveConfig


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CoordTokensConfig(_Section):
    """Whether coordinates are tokens of their own, and whether boxes arrive normalised already."""

    enabled: bool = True
    skip_bbox_norm: bool = True


class CoordSoftCeW1Config(_Section):
    """Soft cross-entropy, Wasserstein-1 and the vocabulary gate over coordinate tokens."""

    enabled: bool = False
    soft_ce_weight: NonNegativeFloat = 1.0
    w1_weight: NonNegativeFloat = 1.0
    gate_weight: NonNegativeFloat = 1.0
    temperature: PositiveFloat = 1.0
    target_sigma: PositiveFloat = 2.0
    target_truncate: PositiveInt = 16


class CoordObjectiveConfig(_Section):
    """Phase 1's flags: hard cross-entropy on coordinates, and the geometry of the expected box."""

    use_coord_ce: bool = False
    use_coordexp_loss: bool = False
    use_geom_loss: bool = False
    lambda_coord: NonNegativeFloat = 1.0
    lambda_coord_ce: NonNegativeFloat = 1.0
    alpha_l1: NonNegativeFloat = 1.0
    beta_giou: NonNegativeFloat = 1.0
    expectation_temperature: PositiveFloat = 1.0


class CustomConfig(_Section):
    """Everything under `custom:`; `.objective` is what the losses package is given."""

    coord_tokens: CoordTokensConfig = Field(default_factory=CoordTokensConfig)
    coord_soft_ce_w1: CoordSoftCeW1Config = Field(default_factory=CoordSoftCeW1Config)
    coord_objective: CoordObjectiveConfig = Field(default_factory=CoordObjectiveConfig)
    coord_offset: CoordOffsetConfig = Field(default_factory=CoordOffsetConfig)

    @model_validator(mode="after")
    def _flags_agree(self) -> CustomConfig:
        flags, soft, tokens = self.coord_objective, self.coord_soft_ce_w1, self.coord_tokens
        if flags.use_geom_loss != flags.use_coordexp_loss:
            on, off = (
                ("use_geom_loss", "use_coordexp_loss")
                if flags.use_geom_loss
                else ("use_coordexp_loss", "use_geom_loss")
            )
            raise ValueError(
                f"custom.coord_objective.{on} is true but custom.coord_objective.{off} is false: the box loss "
                "needs the expected box and the expected box serves nothing else; set both or neither"
            )
        wanted = {
            "custom.coord_soft_ce_w1.enabled": soft.enabled,
            "custom.coord_objective.use_coord_ce": flags.use_coord_ce,
            "custom.coord_objective.use_geom_loss": flags.use_geom_loss,
        }
        if tokens.enabled and not any(wanted.values()):
            raise ValueError(
                "custom.coord_tokens.enabled is true but nothing trains the coordinates: set "
                "custom.coord_soft_ce_w1.enabled: true, or one of custom.coord_objective.use_coord_ce and "
                "custom.coord_objective.use_geom_loss with use_coordexp_loss"
            )
        if not tokens.enabled:
            for name in [*(name for name, on in wanted.items() if on), *self._offsets_on()]:
                raise ValueError(
                    f"custom.coord_tokens.enabled is false but {name} is true: without coordinate tokens the "
                    "numbers are plain text and only the text loss applies; switch one of the two"
                )
        if tokens.enabled and not self.trains_coordinates:
            raise ValueError(
                "custom.coord_tokens.enabled is true but every weight of the coordinate terms that are switched "
                "on is 0 (custom.coord_objective.lambda_coord, lambda_coord_ce, "
                "custom.coord_soft_ce_w1.*_weight): raise one of them"
            )
        return self

    def _offsets_on(self) -> list[str]:
        return ["custom.coord_offset.enabled"] if self.coord_offset.enabled else []

    @property
    def trains_coordinates(self) -> bool:
        """Whether any coordinate term has a weight."""
        o = self.objective
        return any((o.coord_ce_weight, o.soft_ce_weight, o.w1_weight, o.gate_weight, o.box_weight))

    @property
    def objective(self) -> ObjectiveConfig:
        """The weights of every term; terms that are switched off weigh 0 and are not computed."""
        flags, soft = self.coord_objective, self.coord_soft_ce_w1
        return ObjectiveConfig(
            text_weight=1.0,
            coord_ce_weight=flags.lambda_coord_ce if flags.use_coord_ce else 0.0,
            box_weight=flags.lambda_coord if flags.use_geom_loss else 0.0,
            alpha_l1=flags.alpha_l1,
            beta_giou=flags.beta_giou,
            expectation_temperature=flags.expectation_temperature,
            soft_ce_weight=soft.soft_ce_weight if soft.enabled else 0.0,
            w1_weight=soft.w1_weight if soft.enabled else 0.0,
            gate_weight=soft.gate_weight if soft.enabled else 0.0,
            temperature=soft.temperature,
            target_sigma=soft.target_sigma,
            target_truncate=soft.target_truncate,
        )
