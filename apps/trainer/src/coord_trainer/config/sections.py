"""The sections of a `RunConfig`, each frozen and checked on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator, model_validator

from coord_codec import MARKERS, Geometry, geometry_of
from coord_codec.boxes import OnBadBox
from coord_codec.geometry import GeometryName
from coord_codec.geometry.polygon import PolygonGeometry
from coord_trainer.config.base import Fraction, Probability, Section, Seed
from coord_trainer.config.decoding import STRATEGIES
from coord_trainer.config.formats import Format
from coord_trainer.config.sources import AugmentConfig, ClassNames, ClassPrompt, Prompt, Queries, SourceConfig

DEFAULT_PROMPT = "Describe all objects in the image with their bounding boxes."
DEFAULT_CLASS_PROMPT = "Describe all objects of these classes with their bounding boxes: {classes}"


class RunSection(Section):
    """Where the run goes, and what makes it repeatable."""

    dir: Path | None = Field(None, description="run folder; `runs/` and the config's name when not given")
    seed: Seed = Field(0, description="seed of initial weights, batches and dropout")
    profile: bool = Field(False, description="measure a few steps and report where their time goes")
    resume: bool = Field(False, description="continue the run in `run.dir` from its newest complete checkpoint")
    on_nan: Literal["stop", "skip"] = Field(
        "stop", description="at a loss that is not finite, stop the run or leave that micro-batch out and list it"
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
        description="initialise coordinate tokens and patch positions by smooth functions of their position, so "
        "that neighbouring bins start alike",
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
    """A checkpoint (`path`: folder or hub id) or, when there is none, the built-in tiny model."""

    path: str | None = Field(None, description="folder of a Qwen3-VL checkpoint, or a hub id with `model.download`")
    download: bool = Field(False, description="allow the network, to fetch a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="number format of the weights")
    attention: Literal["sdpa", "eager", "flash_attention_2"] = Field(
        "sdpa", description="attention implementation; flash_attention_2 is replaced by sdpa where it cannot run"
    )
    fused_head: bool = Field(
        True,
        description="compute head and loss in chunks, without the logits of all tokens at once; false uses the "
        "readable form of the same objective, for comparison",
    )
    tiny: TinyModelConfig = Field(default_factory=TinyModelConfig, description="sizes of the built-in tiny model")


class ShapesConfig(Section):
    """The generated data set: coloured shapes with sub-pixel boxes on noise."""

    train: PositiveInt = Field(6000, description="number of training images")
    heldout: PositiveInt = Field(500, description="number of held-out images")
    size: PositiveInt = Field(96, description="side of an image in pixels")
    max_objects: PositiveInt = Field(3, description="most objects in an image")
    colours: Annotated[int, Field(ge=1, le=4)] = Field(
        3, description="colours that names begin with: red, green, blue, yellow; times three shapes"
    )
    min_side: Fraction = Field(0.22, description="shortest side of an object, as a fraction of the image's")
    max_side: Fraction = Field(0.5, description="longest side of an object, as a fraction of the image's")
    noise: NonNegativeFloat = Field(8.0, description="standard deviation of the pixel noise, of 255")
    seed: Seed = Field(1, description="seed of the drawing; `run.seed` does not change the images")

    @model_validator(mode="after")
    def _sides_in_order(self) -> ShapesConfig:
        _in_order("data.shapes.min_side", self.min_side, "data.shapes.max_side", self.max_side)
        return self


class DataSection(Section):
    """Annotations and images, or the generated shapes when there are none."""

    annotations: Path | None = Field(
        None,
        description="training annotations: a file or folder of any format that `prepare` reads; generated shapes when "
        "not given",
    )
    images: Path | None = Field(
        None,
        description="folder that image paths in the training annotations are relative to; told by the format when not "
        "given, for instance JSONL the file's own folder",
    )
    format: Format = Field("auto", description="format of the annotations; told by their content when auto")
    on_bad_box: OnBadBox = Field(
        "drop_image",
        description="an object that is wrong takes its image along, goes alone, or is an error; one that is too small "
        "for a bin goes alone, or is an error",
    )
    allow_outside: bool = Field(
        False, description="open images that links or paths with .. lead to outside the folder of the images"
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
        description="several sources that one run trains on, instead of `data.annotations`; what a source does not say "
        "is as in this section",
    )
    limit: PositiveInt | None = Field(
        None,
        description="train on the first so many usable images, for a trial; all when not given. `inspect` and "
        "scoring of held-out images take no notice of it",
    )
    classes: ClassNames | None = Field(
        None,
        description="the only descriptions that are taught, scored and asked for, others are left out and counted; all "
        "of the annotations when not given",
    )
    queries: Queries = Field(
        "all",
        description="what a training sample asks for, drawn anew in each epoch: all objects, those of one class, "
        "those of a few classes, or one of the three; a record with a `query` asks for that phrase",
    )
    negatives: Probability = Field(
        0.25,
        description="share of the queries by class that ask only for what is not in the image; the answer is empty",
    )
    class_prompt: ClassPrompt = Field(
        DEFAULT_CLASS_PROMPT, description="the user's message of a query; {classes} is replaced by what is asked for"
    )
    augment: AugmentConfig = Field(
        default_factory=AugmentConfig, description="changes of the training images and their boxes"
    )
    prompt: Prompt = Field(DEFAULT_PROMPT, description="the user's message beside the image")
    max_objects: PositiveInt = Field(
        30, description="most objects in a target; those beyond it are left out and counted"
    )
    order: Literal["top_left", "given", "random", "size"] = Field(
        "top_left",
        description="order of the objects in a target: by (y1, x1), as annotated, at random anew in each epoch, or "
        "the largest first",
    )
    markers: str = Field(
        "qwen",
        description="marker tokens around an object: `qwen`, which pretrained checkpoints know, or `obj`, which adds "
        "<obj_start> and <obj_end>",
    )
    style: Literal["markers", "json"] = Field("markers", description="target as marked objects, or as JSON text")
    geometry: GeometryName = Field(
        "box",
        description="what is taught of each object: its box, a point, a polygon, an oriented box of four corners or "
        "keypoints; of COCO files from `segmentation` and `keypoints`, else from the box",
    )
    max_vertices: Annotated[int, Field(ge=3, le=128)] = Field(
        32, description="most vertices of a polygon in a target; outlines of more are simplified"
    )
    noise_objects: PositiveInt | None = Field(
        None,
        description="fill each target up to so many objects with random boxes called noise, whose coordinates are not "
        "supervised, so that a model need not stop early; see the reading `names-filled`",
    )
    min_pixels: PositiveInt | None = Field(
        None, description="images of fewer pixels are enlarged; the checkpoint's own limit when not given"
    )
    max_pixels: PositiveInt | None = Field(
        None, description="images of more pixels are reduced; the checkpoint's own limit when not given"
    )
    packing: bool = Field(
        False, description="put a rank's batch into one row without padding, in which each sample attends to itself"
    )
    preload: bool | None = Field(
        None, description="encode all samples once and keep them in memory; decided by size when not given"
    )
    strict: bool = Field(
        False, description="make any bad record an error; otherwise it is left out of training and scoring, and listed"
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
        """Return the setting that makes a sample another one in each epoch, so that it cannot be kept encoded."""
        if self.order == "random":
            return "data.order is random"
        if self.noise_objects:
            return "data.noise_objects is set"
        if self.augment.active:
            return "data.augment is on"
        return f"data.queries is {self.queries}" if self.queries != "all" else None

    @property
    def given(self) -> bool:
        """Whether there are annotations to train on, and no shapes have to be drawn."""
        return self.annotations is not None or bool(self.sources)

    def of_source(self, source: SourceConfig) -> DataSection:
        """Return the section of one source: what it leaves out is as in this one."""
        shared = DataSection.model_fields.keys() & SourceConfig.model_fields.keys()
        stated = {name: getattr(source, name) for name in shared if getattr(source, name) is not None}
        return self.model_copy(update={"sources": (), "images": None, **stated})

    @model_validator(mode="after")
    def _one_form(self) -> DataSection:
        if self.sources and (self.annotations is not None or self.images is not None):
            named = "annotations" if self.annotations is not None else "images"
            raise ValueError(f"data.sources and data.{named} are both given: name it within a source, or leave one out")
        weighed = [source.weight is not None for source in self.sources]
        if any(weighed) and not all(weighed):
            number = weighed.index(False)
            raise ValueError(f"data.sources.{number}.weight: give every source a weight or none, found none here")
        return self

    @model_validator(mode="after")
    def _pairs(self) -> DataSection:
        _in_order("data.min_pixels", self.min_pixels, "data.max_pixels", self.max_pixels)
        for prefix in ("", "heldout_"):
            given, folder = getattr(self, f"{prefix}annotations"), getattr(self, f"{prefix}images")
            if folder is not None and given is None:
                raise ValueError(f"data.{prefix}images is given but data.{prefix}annotations is not: name both")
        if self.limit is not None and not self.given:
            raise ValueError("data.limit: the generated shapes are as many as data.shapes.train says; set that")
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
        description="images that are answered and scored: held-out ones, the training set (memorising), or none",
    )
    limit: PositiveInt | None = Field(None, description="score the first so many images; all when not given")
    batch_size: PositiveInt = Field(50, description="images per batch when answers are generated")
    max_new_tokens: PositiveInt | None = Field(
        None,
        description="longest answer in tokens; room for data.max_objects objects with the longest name when not given",
    )
    overlays: PositiveInt = Field(24, description="images that the report shows with their boxes")
    readings: tuple[str, ...] = Field(
        ("greedy",), description=f"decoding strategies, the first is the run's: {', '.join(STRATEGIES)}"
    )
    overfitting_after: PositiveInt = Field(
        3, description="rising evaluation losses in a row, while training's falls, after which a line says so"
    )
    ap_steps: PositiveInt | None = Field(
        None, description="steps between two scorings of answers during training, for AP; none when not given"
    )
    ap_images: PositiveInt = Field(
        100, description="images that are answered then, always the same, spread evenly over the scored ones"
    )
    ap_patience: PositiveInt | None = Field(
        None, description="stop after so many scorings in a row without a higher AP; never when not given"
    )
    each_checkpoint: bool = Field(
        False, description="answer and score every saved checkpoint instead of the last alone"
    )

    @field_validator("readings")
    @classmethod
    def _known_strategies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value) or not set(value) <= set(STRATEGIES):
            raise ValueError(f"expected one or more of {', '.join(STRATEGIES)}, each once")
        return value
