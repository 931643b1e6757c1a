"""`RunConfig`: the complete, frozen configuration of a run, checked before any slow import."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator

from coord_codec import InputError
from coord_detect.settings.load import check_settings, load_settings
from coord_detect.settings.record import Settings
from coord_detect.settings.rules import Rule
from coord_detect.settings.sections import ANSWERING_RULES
from coord_trainer.config.objective import CUSTOM_RULES, CustomConfig
from coord_trainer.config.sections import (
    DATA_RULES,
    EVALUATION_RULES,
    RUN_RULES,
    DataSection,
    EvaluationSection,
    ModelSection,
    RunSection,
)
from coord_trainer.config.swift_arguments import TRAINING_RULES, argument_table, check_training


class RunConfig(Settings):
    """The configuration of one run, one field per section; it extends the settings that answers depend on."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *CUSTOM_RULES,
        *RUN_RULES,
        *DATA_RULES,
        *EVALUATION_RULES,
        *ANSWERING_RULES,
        *TRAINING_RULES,
    )
    ALTERNATIVES: ClassVar[tuple[tuple[str, str], ...]] = (("training.max_steps", "training.num_train_epochs"),)

    run: RunSection = Field(default_factory=RunSection, description="folder, seed and conduct of the run")
    model: ModelSection = Field(default_factory=ModelSection, description="the checkpoint that is trained")
    data: DataSection = Field(default_factory=DataSection, description="annotations, images and target text")
    custom: CustomConfig = Field(default_factory=CustomConfig, description="coordinate tokens and loss terms")
    training: dict[str, Any] = Field(
        default_factory=dict, description="any supported argument of ms-swift's SFT, for example learning_rate"
    )
    evaluation: EvaluationSection = Field(
        default_factory=EvaluationSection, description="what is generated and scored after training"
    )
    plugins: tuple[str, ...] = Field(
        (),
        description="Python files or modules that are imported first and register rows of your own: loss terms, "
        "geometries, model families, views",
    )

    @field_validator("training")
    @classmethod
    def _of_training(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        custom = info.data.get("custom")
        return check_training(value, offsets=custom is not None and custom.coord_offset.enabled)

    @classmethod
    def further_names(cls) -> Iterable[str]:  # noqa: D102
        return [f"training.{name}" for name in argument_table()]


def load_run_config(
    file: Path | None, overrides: Sequence[str], base: Path | None = None, trains: bool = True, needs_data: bool = False
) -> RunConfig:
    """Resolve a config file and overrides, see `load_settings`.

    Args:
        file: YAML; paths in `extends` are relative to the file, or else to the working folder
        overrides: words like `run.dir=out`, values in YAML
        base: another YAML that `file` overrides, as if its topmost parent extended it
        trains: false for inference, which needs no objective
        needs_data: whether a setting that a file leaves open (`???`), such as `data.annotations`, has to be given

    Raises:
        InputError: a setting is wrong or left open; the message names file and field.
    """
    config, left_open = load_settings(RunConfig, file, overrides, base, trains)
    for name in left_open:
        if needs_data and not (name == "data.annotations" and config.data.sources):
            raise InputError(f"{file}: {name} has to be given, as this configuration is for own data: add {name}=PATH")
    return config


def check_run_config(values: Any, source: str, trains: bool = True) -> RunConfig:
    """Validate a mapping; see `check_settings`."""
    return check_settings(RunConfig, values, source, trains)
