"""The sections of `Settings`: how a model is loaded, asked and answers, each frozen and validated on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, field_validator, model_validator

from coord_codec import MARKERS, Geometry, encode_target, geometry_of
from coord_codec.geometry import GeometryName
from coord_detect.settings.base import Section
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.prompts import DEFAULT_CLASS_PROMPT, DEFAULT_PROMPT, ClassPrompt, Prompt
from coord_detect.settings.rules import Rule
from coord_detect.views.registry import views_of

if TYPE_CHECKING:
    from coord_codec import Instance


class Loading(Section):
    """How a checkpoint is loaded."""

    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="number format of the weights")
    attention: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = Field(
        "sdpa",
        description="attention implementation; sdpa is PyTorch's, with its own flash-attention on a GPU in half "
        "precision; flash_attention_2 and 3 need a package each, and are replaced by sdpa where they cannot run",
    )


class Asking(Section):
    """How a model is asked, and the form of its answers; a model's `coordexp.json` states how it was trained."""

    prompt: Prompt = Field(DEFAULT_PROMPT, description="the user's message beside the image")
    max_objects: PositiveInt = Field(30, description="most objects in a target; further ones are left out and counted")
    order: Literal["top_left", "given", "random", "size"] = Field(
        "top_left",
        description="order of the objects in a target: by (y1, x1), as annotated, random in each epoch, or "
        "largest first",
    )
    markers: Literal["qwen", "obj"] = Field(
        "qwen",
        description="marker tokens around an object: `qwen`, which pretrained checkpoints know, or `obj`, which adds "
        "<obj_start> and <obj_end>",
    )
    style: Literal["markers", "json"] = Field("markers", description="target as marked objects, or as JSON text")
    max_vertices: Annotated[int, Field(ge=3, le=128)] = Field(
        32, description="most vertices of a polygon in a target; outlines with more are simplified"
    )
    min_pixels: PositiveInt | None = Field(
        None, description="images with fewer pixels are enlarged; the checkpoint's own limit when not given"
    )
    max_pixels: PositiveInt | None = Field(
        None, description="images with more pixels are reduced; the checkpoint's own limit when not given"
    )
    geometry: Annotated[GeometryName, AfterValidator(lambda name: geometry_of(name).name)] = Field(
        "box", description="geometry of the answers: box, point, polygon, oriented box of four corners, or keypoints"
    )
    class_prompt: ClassPrompt = Field(
        DEFAULT_CLASS_PROMPT, description="the user's message of a query; {classes} is replaced by the queried names"
    )

    @property
    def shape(self) -> Geometry:
        """The geometry of the targets."""
        return geometry_of(self.geometry).with_max_vertices(self.max_vertices)

    def marker_ids(self, tokenizer: Any) -> tuple[int, ...] | None:
        """Return the token ids of the markers for `find_layout`; None for JSON."""
        return MARKERS[self.markers].ids(tokenizer) if self.style == "markers" else None

    def target_text(self, instance: Instance, coord_tokens: bool) -> str:
        """Return an answer with an instance's objects, in their order; coordinates are tokens or plain numbers."""
        return encode_target(
            instance,
            markers=self.markers,
            style=self.style,
            form="tokens" if coord_tokens else "numbers",
            order="given",
            geometry=self.shape,
        )

    @model_validator(mode="after")
    def _limits_in_order(self) -> Asking:
        in_order("data.min_pixels", self.min_pixels, "data.max_pixels", self.max_pixels)
        return self


class Answering(Section):
    """How images are answered."""

    limit: PositiveInt | None = Field(None, description="number of images to score, from the first; all if not given")
    batch_size: PositiveInt = Field(50, description="images per batch when answers are generated")
    max_new_tokens: PositiveInt | None = Field(
        None,
        description="longest answer in tokens; enough for data.max_objects objects with the longest name if not given",
    )
    decoding: tuple[Decoding, ...] = Field(
        (Decoding(),),
        description="how answers are generated and read: one decoding, or a list of them, of which the first is the "
        "run's",
    )
    views: tuple[str, ...] = Field(
        (),
        description="further views of each image, whose answers are fused with that to the image itself (test-time "
        "augmentation): `mirror`, `scale:1.25` (a factor), `tiles:640x640` or `tiles:auto` (overlapping tiles), "
        "`classes` (a question for each known label), or views of your own; each multiplies the time",
    )
    device: str | None = Field(
        None,
        pattern=r"^(cpu|cuda(:\d+)?)$",
        description="device that images are answered on: cpu, cuda, cuda:1; when not given, the GPU of the process, if "
        "there is one",
    )
    speed: Literal["plain", "exact"] = Field(
        "plain",
        description="plain generates a token in each pass through the model; exact drafts the tokens that answers "
        "leave no choice in (speculative decoding) and verifies them in one pass, with the answers of plain",
    )

    @field_validator("views", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return [word for word in value.split(",") if word] if isinstance(value, str) else value

    @field_validator("views")
    @classmethod
    def _known_views(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        views_of(value)
        return value

    @field_validator("decoding", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        values = list(value) if isinstance(value, list | tuple) else [value]
        if wrong := [item for item in values if not isinstance(item, dict | Decoding)]:
            raise ValueError(
                f"evaluation.decoding: expected settings such as {{grammar: markers, boxes: best_iou}}, or a list of "
                f"them, found {wrong[0]!r}"
            )
        return values

    @field_validator("decoding")
    @classmethod
    def _each_once(cls, value: tuple[Decoding, ...]) -> tuple[Decoding, ...]:
        if not value or len(set(value)) != len(value):
            names = ", ".join(decoding.name for decoding in value) or "none"
            raise ValueError(f"evaluation.decoding: expected one or more decodings, each once, found {names}")
        return value


class CoordTokens(Section):
    """Whether coordinates are tokens."""

    enabled: bool = Field(True, description="coordinates are tokens; false trains the numbers 0 to 999 as plain text")


class Coordinates(Section):
    """How coordinates are written."""

    coord_tokens: CoordTokens = Field(default_factory=CoordTokens, description="coordinates as tokens or as plain text")

    @property
    def trains_coordinates(self) -> bool:
        """Whether a term of an objective needs coordinate tokens; there is none without a training."""
        return False


def in_order(low_name: str, low: float | None, high_name: str, high: float | None) -> None:
    """Raise `ValueError` if the lower of two limits, by their names, is above the other."""
    if low is not None and high is not None and low > high:
        raise ValueError(f"{low_name} is {low} but {high_name} is {high}: the first must not be above the second")


ANSWERING_RULES = (
    Rule(
        lambda c: not c.custom.coord_tokens.enabled and any(d.needs_tokens for d in c.evaluation.decoding),
        ("evaluation.decoding", "custom.coord_tokens.enabled"),
        "grammar and distributions require coordinate tokens; use {grammar: none, boxes: tokens} for such answers",
    ),
    Rule(
        lambda c: not c.data.shape.is_box and any(d.boxes != "tokens" for d in c.evaluation.decoding),
        ("evaluation.decoding", "data.geometry"),
        "boxes other than tokens are for boxes alone; leave `boxes` out",
    ),
    Rule(
        lambda c: c.evaluation.speed != "plain" and not c.custom.coord_tokens.enabled,
        ("evaluation.speed", "custom.coord_tokens.enabled"),
        "tokens are drafted by the form of answers with coordinate tokens; use plain",
    ),
    Rule(
        lambda c: c.evaluation.speed != "plain" and c.model.attention.startswith("flash"),
        ("evaluation.speed", "model.attention"),
        "answers of a batch that differ in length need a mask of their own; use sdpa, or plain",
    ),
)
"""Contradictions of the settings that answers depend on."""
