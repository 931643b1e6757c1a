"""The sections of a `RunConfig`, each frozen and validated on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator, model_validator

from coord_codec import MARKERS, Geometry, geometry_of
from coord_codec.geometry.polygon import PolygonGeometry
from coord_data.rules import ReadingRules
from coord_trainer.config.base import Fraction, Probability, Section, Seed
from coord_trainer.config.decoding import STRATEGIES
from coord_trainer.config.sources import AugmentConfig, ClassPrompt, Prompt, Queries, SourceConfig

DEFAULT_PROMPT = "Describe all objects in the image with their bounding boxes."
DEFAULT_CLASS_PROMPT = "Describe all objects of these classes with their bounding boxes: {classes}"


class RunSection(Section):
    """Folder, seed and conduct of the run."""

    dir: Path | None = Field(None, description="run folder; `runs/` and the config's name when not given")
    seed: Seed = Field(0, description="seed of initial weights, batches and dropout")
    profile: bool = Field(False, description="measure a few steps and report where their time goes")
    resume: bool = Field(False, description="continue the run in `run.dir` from its newest complete checkpoint")
    on_nan: Literal["stop", "skip"] = Field(
        "stop", description="at a loss that is not finite, stop the run, or leave that micro-batch out and list it"
    )
    threads: PositiveInt | None = Field(None, description="CPU threads that torch uses; all cores when not given")
    gradient_norms: bool = Field(
        False, description="log each loss term's gradient norm on logging steps (one extra backward pass per term)"
    )


class TinyModelConfig(Section):
    """Sizes of the built-in model with random weights, which is used without `model.path`."""

    hidden: PositiveInt = Field(96, description="hidden width of the language model")
    layers: PositiveInt = Field(3, description="layers of the language model")
    heads: PositiveInt = Field(4, description="attention heads of language model and vision tower")
    ffn: PositiveInt = Field(192, description="width of the language model's feed-forward layers")
    vision_hidden: PositiveInt = Field(96, description="hidden width of the vision tower")
    vision_layers: PositiveInt = Field(3, description="layers of the vision tower")
    position_side: PositiveInt = Field(6, description="side of the vision tower's grid of learned positions")
    init_std: NonNegativeFloat = Field(0.05, description="standard deviation of the random initial weights")
    tied: bool = Field(True, description="embedding and output head share one table")
    smooth_rows: bool = Field(
        True,
        description="initialise coordinate tokens and patch positions with smooth functions of their position, so "
        "that neighbouring bins begin with similar rows",
    )
    coord_std: NonNegativeFloat = Field(0.1, description="root mean square of the smooth coordinate rows")
    position_std: NonNegativeFloat = Field(0.3, description="root mean square of the smooth patch positions")
    min_pixels: PositiveInt = Field(32 * 32, description="images of fewer pixels are enlarged")
    max_pixels: PositiveInt = Field(96 * 96, description="images of more pixels are reduced")

    @model_validator(mode="after")
    def _heads_divide(self) -> TinyModelConfig:
        for name in ("hidden", "vision_hidden"):
            if getattr(self, name) % (4 * self.heads):
                raise ValueError(f"model.tiny.{name} must be a multiple of 4 x heads, found {getattr(self, name)}")
        _in_order("model.tiny.min_pixels", self.min_pixels, "model.tiny.max_pixels", self.max_pixels)
        return self


class ModelSection(Section):
    """A checkpoint (`path`: folder or hub id), or without one the built-in tiny model."""

    path: str | None = Field(
        None, min_length=1, description="folder of a Qwen3-VL checkpoint, or a hub id with `model.download`"
    )
    download: bool = Field(False, description="allow network access, to download a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="number format of the weights")
    attention: Literal["sdpa", "eager", "flash_attention_2"] = Field(
        "sdpa", description="attention implementation; flash_attention_2 is replaced by sdpa where it cannot run"
    )
    fused_head: bool = Field(
        True,
        description="compute head and loss in chunks, without the logits of all tokens at once; false uses the "
        "unfused implementation of the same objective, for comparison",
    )
    tiny: TinyModelConfig = Field(default_factory=TinyModelConfig, description="sizes of the built-in tiny model")


class ShapesConfig(Section):
    """The generated data set: coloured shapes with sub-pixel boxes on noise."""

    train: PositiveInt = Field(6000, description="number of training images")
    heldout: PositiveInt = Field(500, description="number of held-out images")
    size: PositiveInt = Field(96, description="side of an image in pixels")
    max_objects: PositiveInt = Field(3, description="most objects in an image")
    colours: Annotated[int, Field(ge=1, le=4)] = Field(
        3, description="number of colours in names (red, green, blue, yellow), each with three shapes"
    )
    min_side: Fraction = Field(0.22, description="shortest side of an object, as a fraction of the image's")
    max_side: Fraction = Field(0.5, description="longest side of an object, as a fraction of the image's")
    noise: NonNegativeFloat = Field(8.0, description="standard deviation of the pixel noise, on a scale of 255")
    seed: Seed = Field(1, description="seed of the images, which `run.seed` does not change")

    @model_validator(mode="after")
    def _sides_in_order(self) -> ShapesConfig:
        _in_order("data.shapes.min_side", self.min_side, "data.shapes.max_side", self.max_side)
        return self


class DataSection(Section, ReadingRules):
    """Annotations and images, or without annotations the generated shapes."""

    annotations: Path | None = Field(
        None,
        description="training annotations: a file or folder of any format that `prepare` reads; generated shapes when "
        "not given",
    )
    heldout_annotations: Path | None = Field(
        None, description="annotations of the images that are scored with `evaluation.pictures: heldout`"
    )
    heldout_images: Path | None = Field(None, description="folder of the held-out images")
    shapes: ShapesConfig = Field(
        default_factory=ShapesConfig, description="the generated data set, used without `data.annotations`"
    )
    sources: tuple[SourceConfig, ...] = Field(
        (),
        description="several sources that one run trains on, instead of `data.annotations`; settings that a source "
        "leaves out are taken from this section",
    )
    limit: PositiveInt | None = Field(
        None,
        description="number of usable images to train on, from the first, for a trial; all when not given. `inspect` "
        "and the scoring of held-out images ignore it",
    )
    queries: Queries = Field(
        "all",
        description="what a training sample asks for, drawn anew in each epoch: all objects, those of one class, "
        "those of a few classes, or one of these three; a record with a `query` asks for that phrase",
    )
    negatives: Probability = Field(
        0.25,
        description="share of the queries by class that ask only for classes not in the image; their answer is empty",
    )
    class_prompt: ClassPrompt = Field(
        DEFAULT_CLASS_PROMPT, description="the user's message of a query; {classes} is replaced by the queried names"
    )
    augment: AugmentConfig = Field(
        default_factory=AugmentConfig, description="changes of the training images and their boxes"
    )
    prompt: Prompt = Field(DEFAULT_PROMPT, description="the user's message beside the image")
    max_objects: PositiveInt = Field(30, description="most objects in a target; further ones are left out and counted")
    order: Literal["top_left", "given", "random", "size"] = Field(
        "top_left",
        description="order of the objects in a target: by (y1, x1), as annotated, random in each epoch, or "
        "largest first",
    )
    markers: str = Field(
        "qwen",
        description="marker tokens around an object: `qwen`, which pretrained checkpoints know, or `obj`, which adds "
        "<obj_start> and <obj_end>",
    )
    style: Literal["markers", "json"] = Field("markers", description="target as marked objects, or as JSON text")
    max_vertices: Annotated[int, Field(ge=3, le=128)] = Field(
        32, description="most vertices of a polygon in a target; outlines with more are simplified"
    )
    noise_objects: PositiveInt | None = Field(
        None,
        description="number of objects up to which each target is filled with random boxes called noise, whose "
        "coordinates are not supervised, so that answers do not stop too early; see the reading `names-filled`",
    )
    min_pixels: PositiveInt | None = Field(
        None, description="images with fewer pixels are enlarged; the checkpoint's own limit when not given"
    )
    max_pixels: PositiveInt | None = Field(
        None, description="images with more pixels are reduced; the checkpoint's own limit when not given"
    )
    packing: bool = Field(
        False, description="pack a rank's batch into one row without padding, in which each sample attends to itself"
    )
    preload: bool | None = Field(
        None, description="encode all samples once and keep them in memory; depends on their size when not given"
    )

    @field_validator("markers")
    @classmethod
    def _known_markers(cls, value: str) -> str:
        if value not in MARKERS:
            raise ValueError(f"expected one of {', '.join(MARKERS)}, found {value!r}")
        return value

    @property
    def shape(self) -> Geometry:
        """The geometry of the targets."""
        return PolygonGeometry(self.max_vertices) if self.geometry == "polygon" else geometry_of(self.geometry)

    @property
    def varies(self) -> str | None:
        """The setting that makes samples differ between epochs, so that encoded ones cannot be kept; None if none."""
        if self.order == "random":
            return "data.order is random"
        if self.noise_objects:
            return "data.noise_objects is set"
        if self.augment.active:
            return "data.augment is on"
        return f"data.queries is {self.queries}" if self.queries != "all" else None

    @property
    def given(self) -> bool:
        """Whether there are annotations to train on, so that no shapes are generated."""
        return self.annotations is not None or bool(self.sources)

    def of_source(self, source: SourceConfig) -> DataSection:
        """Return the section of one source; settings that it leaves out are taken from this section."""
        shared = DataSection.model_fields.keys() & SourceConfig.model_fields.keys()
        own_settings = {name: getattr(source, name) for name in shared if getattr(source, name) is not None}
        return self.model_copy(update={"sources": (), "images": None, **own_settings})

    @model_validator(mode="after")
    def _one_form(self) -> DataSection:
        if self.sources and (self.annotations is not None or self.images is not None):
            key = "annotations" if self.annotations is not None else "images"
            raise ValueError(f"data.sources and data.{key} are both given: name it within a source, or leave one out")
        has_weight = [source.weight is not None for source in self.sources]
        if any(has_weight) and not all(has_weight):
            number = has_weight.index(False)
            raise ValueError(f"data.sources.{number}.weight: give every source a weight or none, found none here")
        return self

    @model_validator(mode="after")
    def _pairs(self) -> DataSection:
        _in_order("data.min_pixels", self.min_pixels, "data.max_pixels", self.max_pixels)
        for prefix in ("", "heldout_"):
            annotations, images = getattr(self, f"{prefix}annotations"), getattr(self, f"{prefix}images")
            if images is not None and annotations is None:
                raise ValueError(f"data.{prefix}images is given but data.{prefix}annotations is not: name both")
        if self.limit is not None and not self.given:
            raise ValueError("data.limit: the number of generated shapes is data.shapes.train; set that")
        if self.heldout_annotations is not None and not self.given:
            raise ValueError("data.heldout_annotations is given but data.annotations is not: name both")
        return self


def _in_order(low_name: str, low: float | None, high_name: str, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        raise ValueError(f"{low_name} is {low} but {high_name} is {high}: the first must not be above the second")


class EvaluationSection(Section):
    """What is generated and scored after training."""

    pictures: Literal["heldout", "train", "none"] = Field(
        "heldout",
        description="images to generate answers for and to score: held-out, the training set (memorising), or none",
    )
    limit: PositiveInt | None = Field(None, description="number of images to score, from the first; all if not given")
    batch_size: PositiveInt = Field(50, description="images per batch when answers are generated")
    max_new_tokens: PositiveInt | None = Field(
        None,
        description="longest answer in tokens; enough for data.max_objects objects with the longest name if not given",
    )
    overlays: PositiveInt = Field(24, description="number of images that the report shows with their boxes")
    readings: tuple[str, ...] = Field(
        ("greedy",), description=f"decoding strategies, of which the first is the run's: {', '.join(STRATEGIES)}"
    )
    overfitting_after: PositiveInt = Field(
        3, description="number of consecutive rises of the evaluation loss, while training's falls, until a warning"
    )
    ap_steps: PositiveInt | None = Field(
        None, description="steps between two measurements of AP during training; never when not given"
    )
    ap_images: PositiveInt = Field(
        100, description="number of images for these measurements, always the same, spread evenly over the scored ones"
    )
    ap_patience: PositiveInt | None = Field(
        None,
        description="number of consecutive measurements without a higher AP until training stops; never if not set",
    )
    each_checkpoint: bool = Field(
        False, description="generate and score answers of every saved checkpoint, not only of the last"
    )

    @field_validator("readings")
    @classmethod
    def _known_strategies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value) or not set(value) <= set(STRATEGIES):
            raise ValueError(f"expected one or more of {', '.join(STRATEGIES)}, each once")
        return value
