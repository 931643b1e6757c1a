"""`RunConfig`: everything that a run depends on, frozen and checked before anything slow is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from coord_codec import MARKERS

from .custom import CustomConfig
from .readings import READINGS
from .swift_arguments import OWNED_BY_RUN_CONFIG, known_arguments

DEFAULT_PROMPT = "Describe all objects in the image with their bounding boxes."


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSection(_Section):
    """Where the run goes, and what makes it repeatable."""

    dir: Path | None = Field(None, description="run folder; runs/<name of the config> when not given")
    seed: int = 0
    profile: bool = Field(False, description="tell after a few steps where a step's time goes")
    resume: bool = Field(False, description="go on with the run in dir, from its newest complete checkpoint")
    threads: PositiveInt | None = Field(None, description="CPU threads of torch; all cores when not given")
    gradient_norms: bool = Field(
        False, description="log each term's own on log steps: a backward pass more each"
    )


class TinyModelConfig(_Section):
    """Sizes of the built-in model with random weights."""

    hidden: PositiveInt = 96
    layers: PositiveInt = 3
    heads: PositiveInt = 4
    ffn: PositiveInt = 192
    vision_hidden: PositiveInt = 96
    vision_layers: PositiveInt = 3
    position_side: PositiveInt = 6
    init_std: float = 0.05
    tied: bool = True
    smooth_rows: bool = True
    coord_std: float = 0.1
    position_std: float = 0.3
    min_pixels: PositiveInt = 32 * 32
    max_pixels: PositiveInt = 96 * 96

    @model_validator(mode="after")
    def _heads_divide(self) -> TinyModelConfig:
        for name in ("hidden", "vision_hidden"):
            if getattr(self, name) % (4 * self.heads):
                raise ValueError(
                    f"model.tiny.{name} must be a multiple of 4 x heads, found {getattr(self, name)}"
                )
        return self


class ModelSection(_Section):
    """A checkpoint (`path`: folder or hub id) or, when there is none, the built-in tiny model."""

    path: str | None = None
    download: bool = Field(False, description="allow the network for a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    fused_head: bool = Field(
        True, description="never all logits at once; false: the readable form, to compare"
    )
    tiny: TinyModelConfig = Field(default_factory=TinyModelConfig)


class ShapesConfig(_Section):
    """The generated data set: coloured shapes with sub-pixel boxes on noise."""

    train: PositiveInt = 6000
    heldout: PositiveInt = 500
    size: PositiveInt = 96
    max_objects: PositiveInt = 3
    min_side: float = 0.22
    max_side: float = 0.5
    noise: NonNegativeFloat = 8.0
    seed: int = 1


class DataSection(_Section):
    """Annotations and images (COCO JSON or instance JSONL), or the generated shapes when there are none."""

    annotations: Path | None = None
    images: Path | None = None
    heldout_annotations: Path | None = None
    heldout_images: Path | None = None
    shapes: ShapesConfig = Field(default_factory=ShapesConfig)
    prompt: str = DEFAULT_PROMPT
    max_objects: PositiveInt = 30
    order: Literal["top_left", "given", "random", "size"] = "top_left"
    markers: str = "qwen"
    style: Literal["markers", "json"] = "markers"
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None
    packing: bool = Field(False, description="a rank's batch as one row without padding, with any attention")
    preload: bool | None = Field(None, description="encode once and keep; by size when not given")
    strict: bool = Field(False, description="any bad record is an error instead of being left out and listed")

    @field_validator("markers")
    @classmethod
    def _known_markers(cls, value: str) -> str:
        if value not in MARKERS:
            raise ValueError(f"expected one of {', '.join(MARKERS)}, found {value!r}")
        return value

    @field_validator("prompt")
    @classmethod
    def _plain_prompt(cls, value: str) -> str:
        if not value.strip() or "<image>" in value:
            raise ValueError("expected a non-empty prompt without <image>; the picture is put in front of it")
        return value

    @model_validator(mode="after")
    def _pairs(self) -> DataSection:
        for prefix in ("", "heldout_"):
            given, folder = getattr(self, f"{prefix}annotations"), getattr(self, f"{prefix}images")
            if folder is not None and given is None:
                raise ValueError(
                    f"data.{prefix}images is given but data.{prefix}annotations is not: name both"
                )
            if given is not None and given.suffix == ".json" and folder is None:
                raise ValueError(
                    f"data.{prefix}annotations is COCO JSON, so data.{prefix}images must name the image folder"
                )
        if self.heldout_annotations is not None and self.annotations is None:
            raise ValueError("data.heldout_annotations is given but data.annotations is not: name both")
        return self


class EvaluationSection(_Section):
    """What is generated and scored after training."""

    pictures: Literal["heldout", "train", "none"] = "heldout"
    limit: PositiveInt | None = None
    batch_size: PositiveInt = 50
    max_new_tokens: PositiveInt | None = Field(None, description="longest target + 16 when not given")
    overlays: PositiveInt = 24
    readings: tuple[str, ...] = Field(
        ("greedy",), description="how answers are generated; the first is the run's"
    )
    each_checkpoint: bool = Field(
        False, description="answer and score every saved checkpoint, not the last alone"
    )

    @field_validator("readings")
    @classmethod
    def _known_readings(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value) or not set(value) <= READINGS.keys():
            raise ValueError(f"expected one or more of {', '.join(READINGS)}, each once")
        return value


class RunConfig(_Section):
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
