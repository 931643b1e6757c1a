"""Records of an image and its objects, with boxes in [0, 1], and their validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from coord_codec.arguments import plain
from coord_codec.boxes import Bins, OnBadBox, SmallBoxError, check_shown, read_box, widened
from coord_codec.fields import check_places, check_unit, is_deleted, of_meaning, turn_of
from coord_codec.files import InputError, parse_json_line
from coord_codec.geometry import Shape, geometry_of
from coord_codec.geometry.shape import InBins, read_shape
from coord_codec.problems import Problem, check_description, description_fault

UNCERTAIN = "uncertain"
"""Extra key of a record: descriptions of refused objects, which must not be treated as absent from the image."""
ABSENT = "absent"
"""Extra key of a record: the descriptions known to be absent, if annotators did not look for all of them."""
T = TypeVar("T")


def _without_point(value: Any) -> Any:
    """Return 640.0, which pandas writes where another row has no value, as 640; any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_PositiveInt = Annotated[int, Field(gt=0, lt=1 << 31, strict=True), BeforeValidator(_without_point)]
_Id = Annotated[StrictInt | StrictStr, BeforeValidator(_without_point)]


class Object(BaseModel):
    """One object of an image. Further keys are kept.

    Attributes:
        desc: description in words: not empty, without markers, coordinate tokens or other control tokens
        bbox: (x1, y1, x2, y2) as fractions of the image's width and height, x1 < x2 and y1 < y2. Four
            coordinate tokens are converted to the coordinates of their bins
        iscrowd: whether this is a crowd region, as in COCO: not a training target, and ignored when answers are
            scored
        area: area in square pixels (in COCO the mask's) by which scoring classifies the object as small, medium or
            large; the area of the box if None
        geometry: the object's shape, see `coord_codec.geometry`; None if it has only a box. Without `bbox`, the box
            around the shape is used

    Example:
        >>> Object(desc="cat", bbox=["<|coord_100|>", "<|coord_250|>", "<|coord_500|>", "<|coord_750|>"]).bbox
        (0.1, 0.25, 0.5, 0.75)
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    desc: Annotated[str, Field(strict=True)]
    bbox: tuple[float, float, float, float]
    iscrowd: bool = False
    area: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    geometry: Shape | None = None

    @field_validator("desc")
    @classmethod
    def _check_desc(cls, desc: str) -> str:
        return check_description(desc)

    @field_validator("bbox", mode="before")
    @classmethod
    def _check_bbox(cls, bbox: Any) -> tuple[float, ...]:
        return read_box(bbox)

    @field_validator("geometry", mode="before")
    @classmethod
    def _check_geometry(cls, value: Any, info: ValidationInfo) -> Shape | None:
        shape = None if value is None else read_shape(value)
        if shape is None or not geometry_of(shape.type).is_box:
            return shape
        if shape.coordinates != info.data.get("bbox", shape.coordinates):
            raise ValueError(f"expected the same box as in bbox, found {list(shape.coordinates)}: leave one out")
        return shape

    @model_validator(mode="before")
    @classmethod
    def _box_of_shape(cls, values: Any) -> Any:
        """Derive the box of an object that has only a shape, and refuse fields that would change its box."""
        if not isinstance(values, (dict, Mapping)):
            return values
        if values.get("geometry") is None and not values.keys() <= _OF_OBJECTS:
            _check_fields(values)
        if values.get("geometry") is None or values.get("bbox") is not None:
            return values
        try:
            shape = read_shape(values["geometry"])
        except ValueError:
            return {"bbox": (0.0, 0.0, 1.0, 1.0), **values}  # the validator of `geometry` reports the error
        return {**values, "bbox": widened(shape.box)}

    @field_serializer("geometry")
    def _write_geometry(self, shape: Shape | None) -> dict[str, Any] | None:
        return None if shape is None else shape.to_json()


class Instance(BaseModel):
    """One image and its objects: a line of an instance file. Further keys are kept.

    If a record has `coord_space: "bins"`, its boxes are read as bins, converted to [0, 1], and the key is dropped.

    Attributes:
        image: path of the image, relative to the file that contains the record
        objects: the objects, including crowd regions; may be empty
        width: width of the image in pixels
        height: height of the image in pixels
        image_id: id of the image in the data set

    Example:
        >>> Instance(image="a.jpg", objects=[{"desc": "cat", "bbox": [0, 0, 1, 0.5]}]).targets[0].bbox
        (0.0, 0.0, 1.0, 0.5)
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    image: Annotated[str, Field(min_length=1, strict=True)]
    width: _PositiveInt | None = None
    height: _PositiveInt | None = None
    image_id: _Id | None = None
    objects: tuple[Object, ...]

    @property
    def targets(self) -> tuple[Object, ...]:
        """The objects that an answer should contain: all that are not crowd regions."""
        return tuple(o for o in self.objects if not o.iscrowd)

    @model_validator(mode="before")
    @classmethod
    def _read_coord_space(cls, record: Any) -> Any:
        if not isinstance(record, Mapping):
            return record
        if isinstance(objects := record.get("objects"), (list, tuple)):
            further = [o for o in objects if isinstance(o, Mapping) and not o.keys() <= _OF_OBJECTS]
            check_places(further, record)
        if "coord_space" not in record:
            return record
        record = dict(record)
        space = record.pop("coord_space")
        if space != "bins":
            raise ValueError(f"coord_space: expected 'bins' or no such key (boxes in [0, 1]), found {space!r}")
        if isinstance(record.get("objects"), (list, tuple)):
            record["objects"] = [_mark_as_bins(o) for o in record["objects"]]
        return record


_OF_OBJECTS = frozenset(Object.model_fields)


def _check_fields(values: Mapping[str, Any]) -> None:
    """Check that no further field of an object would change its box."""
    check_unit(values, "xyxy", "fractions")
    if is_deleted(values):
        raise InputError("the object is marked as deleted: take it out of the record")
    fields = [name for name, value in of_meaning(values, "shape") if value]
    if fields or turn_of(values):
        named = fields or [name for name, _ in of_meaning(values, "turn")]
        raise InputError(
            f"{named[0]}: expected no angle or other shape beside bbox: write `geometry` with the four corners of the "
            "oriented box instead"
        )


def _mark_as_bins(obj: Any) -> Any:
    if not isinstance(obj, Mapping):
        return obj
    box, shape = plain(obj.get("bbox")), obj.get("geometry")
    marked = {"bbox": Bins(box)} if isinstance(box, (list, tuple)) else {}
    return {**obj, **marked, **({} if shape is None else {"geometry": InBins(shape)})}


def parse_record(record: Any, where: str, on_bad_box: OnBadBox | None = None) -> tuple[Instance | None, list[Problem]]:
    """Return the instance of a record without its refused objects, or None if it is left out, and all its problems.

    The record is an instance, a line of an instance file, or the mapping on it. With `on_bad_box` an invalid
    object may cause the whole image to be left out, and a box thinner than a bin is refused; None leaves out
    records with any fault, and keeps such boxes.
    """
    faults: list[Problem] = []
    invalid: set[Any] = set()
    refused: list[Any] = []
    try:
        values = parse_json_line(record) if isinstance(record, bytes) else record
        instance = values if isinstance(values, Instance) else Instance.model_validate(values)
    except ValidationError as error:
        faults, errors = _problems_of(error, where), error.errors()
        if on_bad_box is None or not all(fault.is_box for fault in faults):
            return None, faults
        causes = (e.get("ctx", {}).get("error") for e in errors)
        if on_bad_box == "drop_image" and not all(isinstance(cause, SmallBoxError) for cause in causes):
            return None, faults
        invalid = {e["loc"][1] for e in errors}
        objects = values["objects"]
        values = {**values, "objects": [o for i, o in enumerate(objects) if i not in invalid]}
        refused = [objects[i].get("desc") for i in invalid if isinstance(objects[i], Mapping)]
        instance = Instance.model_validate(values)
    except ValueError as error:  # the line is no JSON object
        return None, [Problem(where, "", str(error))]
    if on_bad_box is None:
        return instance, faults
    shown: list[Object] = []
    places = (i for i in range(len(instance.objects) + len(invalid)) if i not in invalid)  # in the record
    for i, obj in zip(places, instance.objects, strict=True):
        try:
            check_shown(obj.bbox)
            shown.append(obj)
        except SmallBoxError as error:  # noqa: PERF203 - of one object
            refused.append(obj.desc)
            faults.append(Problem(where, f"objects[{i}].bbox", str(error), is_box=True))
    if len(shown) < len(instance.objects):
        instance = instance.model_copy(update={"objects": tuple(shown)})
    return with_uncertain(instance, refused), faults


def with_uncertain(instance: Instance, descriptions: Iterable[Any]) -> Instance:
    """Return the record with descriptions of refused objects added to its extra key `uncertain`.

    Example:
        >>> with_uncertain(Instance(image="a.jpg", objects=()), ["dog", "cat", None]).uncertain
        ['cat', 'dog']
    """
    added = {desc for desc in descriptions if isinstance(desc, str) and not description_fault(desc)}
    if not added:
        return instance
    return instance.model_copy(update={UNCERTAIN: sorted(added.union(descriptions_in(instance, UNCERTAIN) or ()))})


def descriptions_in(instance: Instance, key: str) -> tuple[str, ...] | None:
    """Return the descriptions listed under an extra key of a record; None if the value is not a list of text."""
    values = getattr(instance, key, None)
    if not isinstance(values, (list, tuple)) or not all(isinstance(desc, str) for desc in values):
        return None
    return tuple(values)


def phrase_of(instance: Instance) -> str | None:
    """Return the phrase of a record, its key `query`; None if the record has none."""
    phrase = getattr(instance, "query", None)
    return phrase if isinstance(phrase, str) and phrase.strip() else None


def validated(kind: type[T], value: Any, where: str) -> T:
    """Return a value of a file as a type that pydantic can check; errors name `where` and the field."""
    try:
        found: T = _adapter(kind).validate_python(value)
        return found
    except ValidationError as error:
        raise InputError(str(_problems_of(error, where)[0])) from None


_adapter: Callable[[Any], TypeAdapter[Any]] = lru_cache(TypeAdapter)


def _problems_of(error: ValidationError, where: str) -> list[Problem]:
    problems = []
    for fault in error.errors():
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
        is_box = fault["loc"][:1] == ("objects",) and len(fault["loc"]) > 1
        problems.append(Problem(where, place, _message(fault), is_box=is_box))
    return problems


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return "expected a value, found none"
    return f"{error['msg']}, found {error['input']!r:.200}"
