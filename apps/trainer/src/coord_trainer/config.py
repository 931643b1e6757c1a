"""`RunConfig`: everything that a run depends on, frozen and checked before anything slow is imported."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from .config_sections import DataSection, EvaluationSection, ModelSection, RunSection, Section
from .custom import CustomConfig
from .readings import READINGS
from .swift_arguments import OWNED_BY_RUN_CONFIG, known_arguments


class RunConfig(Section):
    """One run: composed of the sections above and of the packages' own config models."""

    run: RunSection = Field(default_factory=RunSection)
    model: ModelSection = Field(default_factory=ModelSection)
    data: DataSection = Field(default_factory=DataSection)
    custom: CustomConfig = Field(default_factory=CustomConfig)
    training: dict[str, Any] = Field(default_factory=dict)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)

    @field_validator("training")
    @classmethod
    def _swift_knows(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name in OWNED_BY_RUN_CONFIG:
                raise ValueError(f"training.{name} is set by {OWNED_BY_RUN_CONFIG[name]}; set it there")
            if name not in known_arguments():
                raise ValueError(_unknown_argument(name))
        # YAML reads the strategy `no` as false.
        return {
            name: "no" if given is False and name.endswith("_strategy") else given
            for name, given in value.items()
        }

    @model_validator(mode="after")
    def _offsets_need_an_adapter(self) -> RunConfig:
        tuner = self.training.get("tuner_type", "lora")
        if self.custom.coord_offset.enabled and tuner != "lora":
            raise ValueError(
                f"custom.coord_offset.enabled is true but training.tuner_type is {tuner}: the offsets live in a PEFT "
                "adapter; set training.tuner_type: lora, or switch the offsets off (full training learns the rows)"
            )
        optimizer = self.training.get("optimizer")
        if optimizer == "multimodal_coord_offset" and not self.custom.coord_offset.enabled:
            raise ValueError(
                "training.optimizer is multimodal_coord_offset but custom.coord_offset.enabled is false: there are "
                "no offsets to give a rate of their own; enable them or use multimodal"
            )
        return self

    @model_validator(mode="after")
    def _extras_fit(self) -> RunConfig:
        for name in ("deepspeed", "gradient_checkpointing"):
            if self.run.gradient_norms and self.training.get(name):
                raise ValueError(
                    f"run.gradient_norms is true but training.{name} is set: a term's own gradient cannot be taken "
                    "under it; switch one of the two off"
                )
        if self.data.preload and self.data.order == "random":
            raise ValueError(
                "data.preload is true but data.order is random: every epoch writes another order, so nothing can be "
                "kept encoded; switch one of the two"
            )
        return self

    @model_validator(mode="after")
    def _readings_fit(self) -> RunConfig:
        constrained = [name for name in self.evaluation.readings if READINGS[name].grammar]
        free_text = (
            "custom.coord_tokens.enabled is false"
            if not self.custom.coord_tokens.enabled
            else "data.style is json" * (self.data.style == "json")
        )
        if constrained and free_text:
            raise ValueError(
                f"evaluation.readings names {constrained[0]} but {free_text}: the grammar is that of markers with "
                "coordinate tokens; read such answers greedily"
            )
        return self

    @model_validator(mode="after")
    def _vocabulary_stays_out_of_dora(self) -> RunConfig:
        targets = self.training.get("target_modules") or []
        named = {
            str(name).rsplit(".", 1)[-1] for name in ([targets] if isinstance(targets, str) else targets)
        }
        hit = sorted(named & {"lm_head", "embed_tokens"})
        if self.training.get("use_dora") and hit:
            raise ValueError(
                f"training.use_dora is true and training.target_modules names {hit[0]}: DoRA on the vocabulary merges "
                "wrongly; leave it out of target_modules (all-linear does), or train its rows with custom.coord_offset"
            )
        return self

    @model_validator(mode="after")
    def _something_to_score(self) -> RunConfig:
        data = self.data
        if (
            self.evaluation.pictures == "heldout"
            and data.annotations is not None
            and data.heldout_annotations is None
        ):
            raise ValueError(
                "evaluation.pictures is heldout but data.heldout_annotations is not given: name it, or set "
                "evaluation.pictures to train (memorising) or none"
            )
        return self


def _unknown_argument(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known_arguments(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"training.{name} is not an argument of ms-swift's SFT{hint}"
