"""The sections of a `RunConfig`, each frozen and checked on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

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

from .readings import READINGS

DEFAULT_PROMPT = "Describe all objects in the image with their bounding boxes."


class Section(BaseModel):
    """Frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSection(Section):
    """Where the run goes, and what makes it repeatable."""

    dir: Path | None = Field(None, description="run folder; runs/<name of the config> when not given")
    seed: int = 0
    profile: bool = Field(False, description="tell after a few steps where a step's time goes")
    resume: bool = Field(False, description="go on with the run in dir, from its newest complete checkpoint")
    threads: PositiveInt | None = Field(None, description="CPU threads of torch; all cores when not given")
    gradient_norms: bool = Field(
        False, description="log each term's own on log steps: a backward pass more each"
    )


class TinyModelConfig(Section):
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


class ModelSection(Section):
    """A checkpoint (`path`: folder or hub id) or, when there is none, the built-in tiny model."""

    path: str | None = None
    download: bool = Field(False, description="allow the network for a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    fused_head: bool = Field(
        True, description="never all logits at once; false: the readable form, to compare"
    )
    tiny: TinyModelConfig = Field(default_factory=TinyModelConfig)


class ShapesConfig(Section):
    """The generated data set: coloured shapes with sub-pixel boxes on noise."""

    train: PositiveInt = 6000
    heldout: PositiveInt = 500
    size: PositiveInt = 96
    max_objects: PositiveInt = 3
    min_side: float = 0.22
    max_side: float = 0.5
    noise: NonNegativeFloat = 8.0
    seed: int = 1


class DataSection(Section):
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


class EvaluationSection(Section):
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
