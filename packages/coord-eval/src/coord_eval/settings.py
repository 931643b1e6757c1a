"""The settings of scoring: a frozen record for each subject, whose fields are arguments, options and the guide's table.

Nothing here needs NumPy, so that the help of a command appears at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from coord_codec import GEOMETRIES, CoordGrid, InputError, Order, geometry_of
from coord_codec.arguments import plain
from coord_codec.files import read_json
from coord_codec.settings import Setting, SettingsRecord, setting, stated_settings

if TYPE_CHECKING:
    from coord_codec import Geometry, MarkerFamily

BOX_SOURCES = {
    "tokens": "the tokens of the text",
    "expected": "coord_expected",
    "median": "the medians of coord_quantiles",
    "best_iou": "the box of the highest expected IoU under coord_quantiles",
}
"""Sources of boxes by name."""
SCORE_SOURCES = {
    "expected_iou": "P(label) times the expected IoU of the box, from coord_expected and coord_spread",
    "hit_probability": "P(label) times the probability of an IoU above .5, from coord_expected and coord_spread",
    "coord_logprobs": "exp(mean log p) of the object's coordinate tokens",
    "coord_desc_logprobs": "exp(mean log p) of its coordinate and description tokens together",
    "coord_min": "smallest probability among its coordinate tokens",
    "stated": "the confidence that the answer itself states for each object",
    "emission_rank": "1 / (1 + position in the answer)",
    "constant": "1 for every object",
    "results": "the score that the results list states for each box",
}
"""Score sources by name. `exp(mean log p)` is the geometric mean of the token probabilities."""
SCORE_SOURCE = Setting("Score by which boxes are sorted.", "auto", choices=("auto", *list(SCORE_SOURCES)[:-1]))
BACKEND = Setting(
    "What computes the COCO metrics; the values are the same.", "coord_eval", choices=("coord_eval", "pycocotools")
)
IOU_THRESHOLDS = (*(0.5 + step * ((0.95 - 0.5) / 9) for step in range(9)), 0.95)
"""COCO's thresholds: .50, .55, ..., .95, to the last bit those of NumPy's `linspace`."""
MAX_DETECTIONS = (1, 10, 100)
"""COCO's limits on the detections of one label and image."""
Scale = float | Literal["pixels", "input_pixels", "infer"] | None
Progress = Callable[[str, int, int], None]
Method = Literal["wbf", "nms"]
METHODS: tuple[str, ...] = get_args(Method)
"""Names of the methods of fusion."""
DEFAULT_IOU = 0.55
"""IoU above which boxes are one object, as in the published weighted boxes fusion."""
NAMED_SCALES = ("pixels", "input_pixels", "infer")


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


def as_labels(labels: str | Sequence[str]) -> tuple[str, ...]:
    """Return labels as a tuple; a text is one label."""
    return (labels,) if isinstance(labels, str) else tuple(labels)


def number_or(*names: str) -> Callable[[str], float | str]:
    """Return a reader of words that are a positive number or one of these names."""

    def read(word: str) -> float | str:
        if word in names:
            return word
        try:
            value = float(word)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise InputError(f"expected {' or '.join(['a positive number', *names])}, found {word!r}")
        return value

    return read


def _formats() -> Collection[str]:
    from coord_eval.parse.formats import FORMATS

    return ("auto", *FORMATS)


@dataclass(frozen=True)
class FusionRule:
    """How boxes are fused: by `wbf` or `nms`, where two boxes with a larger IoU are one object."""

    method: str = "wbf"
    iou: float = DEFAULT_IOU

    def __post_init__(self) -> None:
        """Raise an error for an unknown method, or a threshold that is no IoU."""
        if self.method not in METHODS:
            raise InputError(f"method: expected one of {', '.join(METHODS)}, found {self.method!r:.80}")
        if not 0 <= self.iou <= 1:
            raise InputError(f"iou: expected a number from 0 to 1, found {self.iou!r:.80}")

    @classmethod
    def parse(cls, text: str) -> FusionRule:
        """Return the rule that a text `METHOD[:IOU]` states, as `--fuse` takes it.

        Raises:
            InputError: for another text
        """
        method, colon, number = text.partition(":")
        try:
            return cls(method, float(number) if colon else DEFAULT_IOU)
        except ValueError as error:
            raise InputError(
                f"fuse: expected {', '.join(METHODS)}, with an IoU from 0 to 1 after a colon, such as nms:0.5, found "
                f"{text!r:.80}"
            ) from error

    def __str__(self) -> str:
        return f"{self.method}:{self.iou:g}"


def fusion_rule(word: str) -> str:
    """Return a word that states a method of fusion, and an IoU."""
    FusionRule.parse(word)
    return word


METHOD = Setting(
    "Fuse near-duplicates of one label within each answer, before it is scored; a note counts them.",
    None,
    metavar="nms|wbf[:IOU]",
    word=str,
    read=fusion_rule,
    acts_on="score()",
)


@dataclass(frozen=True)
class AnswerSettings(SettingsRecord):
    """How answers become boxes; `fuse_predictions`, `review` and the others take those that act on texts.

    Raises:
        InputError: for an unknown value
    """

    boxes: str = setting(
        "tokens",
        "Source of the boxes: the tokens of the text, coord_expected, or coord_quantiles (the medians, or the box of "
        "the highest expected IoU), which the predictions give for the same tokens.",
        choices=BOX_SOURCES,
        acts_on="texts",
    )
    format: str | MarkerFamily = setting(
        "auto",
        "Format of the answers (names in the README); auto detects it.",
        metavar="F",
        word=str,
        choices=_formats,
        acts_on="texts",
    )
    scale: Scale = setting(
        None,
        "Divisor of plain numbers: a number; pixels: the image size in the prediction, else in the ground truth; "
        "input_pixels: input_width and input_height of the prediction; infer: one for the whole set, with its evidence "
        "in a note. Without it 1000 is assumed and a note says so.",
        metavar="S",
        read=number_or(*NAMED_SCALES),
        acts_on="texts",
    )
    grid: CoordGrid = setting(CoordGrid(), "Grid of the coordinate tokens, and of the ceiling.")
    geometry: str | Geometry = setting(
        "box",
        "Geometry of the objects in the answers; shapes are scored, and their bounding boxes too.",
        metavar=f"[{'|'.join(GEOMETRIES)}]",
        word=str,
        choices=lambda: GEOMETRIES,
        acts_on="texts",
    )
    ignored_labels: str | Sequence[str] = setting(
        (),
        "A label that names no object, such as the `noise` of a model trained with noise objects; objects with it are "
        "dropped and counted; repeatable.",
        flag="--ignore-label",
        metavar="L",
        word=list[str],
        acts_on="texts",
    )
    need_labels: bool = setting(
        True,
        "Whether a box beside words that name nothing for certain is a drop; else it has no label.",
        acts_on="texts",
    )
    in_order: bool = setting(
        False,
        "Answers name no images: they stand in the order of the ground truth's file, as many as its images.",
        acts_on="score()",
    )
    fuse: str | None = METHOD.field()
    calibration: Any = setting(
        None,
        "Map scores to probabilities, as `coord-eval calibrate` fitted them, after near-duplicates are fused.",
        metavar="FILE",
        word=Path,
        acts_on="score()",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", plain(self.scale))
        object.__setattr__(self, "ignored_labels", as_labels(self.ignored_labels))
        geometry_of(self.geometry)
        if self.format != "auto" and (problem := stated_settings(self)["format"].expected_name(self.format)):
            raise InputError(f"format: {problem}")
        if isinstance(self.scale, str) and self.scale not in NAMED_SCALES:
            raise InputError(f"scale: expected a number, {', '.join(NAMED_SCALES)} or None, found {self.scale!r}")

    @property
    def shape(self) -> str:
        """The name of the geometry."""
        return geometry_of(self.geometry).name


@dataclass(frozen=True)
class LabelSettings(SettingsRecord):
    """How the labels of the ground truth are read, and how those of answers are matched with its categories.

    Raises:
        InputError: for a file of synonyms that cannot be read
    """

    synonyms: Mapping[str, Sequence[str]] | str | Path | None = setting(
        None,
        'Other names of categories, or a file of them: JSON {"category": ["other name"]}.',
        metavar="FILE",
        word=Path,
        acts_on="texts",
    )
    label_callback: Callable[[str], str | None] | None = setting(
        None, "Called with a label that no other layer matches; returns a category or None.", acts_on="texts"
    )
    lenient: bool = setting(
        False, "Leave out faulty records of the ground truth and count them, instead of an error.", acts_on="score()"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.synonyms, str | Path):
            from coord_codec.records import validated

            read = validated(dict[str, list[str]], read_json(self.synonyms), str(self.synonyms))
            object.__setattr__(self, "synonyms", read)

    @property
    def other_names(self) -> Mapping[str, Sequence[str]]:
        """The other names of each category that has some."""
        return self.synonyms if isinstance(self.synonyms, Mapping) else {}


@dataclass(frozen=True)
class CeilingSettings(SettingsRecord):
    """How the ground truth is encoded for the quantisation ceiling; use the settings of the training."""

    markers: str | MarkerFamily = setting("obj", "Marker family of the ceiling.", word=Literal["obj", "qwen"])
    max_objects: int | None = setting(
        None, "Object limit of the ceiling; use that of the training.", metavar="N", least=1
    )
    order: Order = setting(
        "top_left",
        "Object order of the ceiling; use that of the training. It has an effect under an object limit alone.",
        acts_on="max_objects",
    )


@dataclass(frozen=True)
class CocoParams(SettingsRecord):
    """Parameters of COCO's metrics; the defaults are COCO's.

    Raises:
        InputError: for invalid values

    Example:
        >>> CocoParams(iou_thresholds=[0.5], areas={"tiny": (0, 256)}, max_detections=[300]).max_detections
        [300]
    """

    iou_thresholds: Sequence[float] = setting(
        IOU_THRESHOLDS, "Additional IoU thresholds for AP and AR.", flag="--iou", metavar="T...", word=list[float]
    )
    areas: Mapping[str, tuple[float, float]] | Sequence[str] = setting(
        (),
        "An additional area range in square pixels, both ends included; repeatable.",
        flag="--area",
        metavar="NAME=LOW:HIGH",
        word=list[str],
    )
    max_detections: Sequence[int] = setting(
        MAX_DETECTIONS,
        "Additional limits on the boxes of one label and image; AP uses the largest.",
        flag="--max-dets",
        metavar="N...",
        word=list[int],
    )

    def __post_init__(self) -> None:
        for name in ("iou_thresholds", "max_detections"):  # NumPy arrays have no truth value
            object.__setattr__(self, name, plain(getattr(self, name)))
        object.__setattr__(self, "areas", self.ranges)
        if not self.iou_thresholds or not all(0 < t <= 1 for t in self.iou_thresholds):
            raise InputError(f"iou_thresholds: expected numbers above 0 and up to 1, found {self.iou_thresholds!r}")
        if not self.max_detections or not all(isinstance(n, int) and n > 0 for n in self.max_detections):
            raise InputError(f"max_detections: expected whole numbers above 0, found {self.max_detections!r}")
        for name, bounds in self.ranges.items():
            if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1]:
                raise InputError(f"areas[{name!r}]: expected smallest and largest area, found {bounds!r}")

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The area ranges by name, which texts state as `NAME=LOW:HIGH`."""
        if isinstance(self.areas, Mapping):
            return self.areas
        areas = {}
        for text in self.areas:
            name, _, bounds = text.partition("=")
            try:
                low, high = map(float, bounds.split(":"))
            except ValueError:
                raise InputError(f"areas: expected NAME=LOW:HIGH, found {text!r}") from None
            areas[name] = (low, high)
        return areas


@dataclass(frozen=True)
class ReportSettings(SettingsRecord):
    """What is computed and told beside COCO's metrics."""

    bootstrap: int = setting(
        0, "Compute confidence intervals from N resamples of the images; 0 for none.", metavar="N", least=0
    )
    seed: int = setting(0, "Seed of the resamples.", least=0)
    params: CocoParams | None = setting(
        None, "IoU thresholds, areas and detection limits of your own; AP and AR with these are in `coco_own`."
    )
    diagnose: bool | None = setting(
        None,
        "Try other scales, orders and shifts of the boxes; always done at AP near 0.",
        flag="--diagnose",
        word=bool,
    )
    image_root: Path | None = setting(
        None, "Folder of the images, whose sizes are compared with those stated; default: that of the ground truth."
    )
    progress: Progress | None = setting(
        None, "Called with the name of a stage, the number of steps done and their total."
    )
