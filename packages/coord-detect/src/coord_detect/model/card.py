"""coordexp.json, saved with each checkpoint: the settings it was trained with, which inference uses and checks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from coord_codec import CoordGrid
from coord_codec.files import InputError, read_json, read_text, write_text
from coord_codec.weights import weights_digest
from coord_detect.model.checkpoints import CARD_FILE
from coord_detect.settings.decoding import Decoding, decoding_named
from coord_detect.settings.load import check_settings
from coord_detect.settings.record import Given, Settings

if TYPE_CHECKING:
    from coord_eval import Calibration

OF_DATA = ("prompt", "markers", "style", "order", "geometry", "max_vertices", "max_objects")
"""Settings of the section `data` that the card states under the same names."""

MOST_NAMES = 20_000
"""Most labels that a card states; data sets of detection have up to some 13,000 classes."""
_FORMAT = 1
"""The version of the card's format."""
_EXPORT = "export.json"
"""The record of a checkpoint that `coord-exporter` wrote; it names the weights of the adapter."""

OF_PIXELS = ("transformers", "pillow", "torchvision")
"""Packages whose versions make other pixels of an image: in resizing, and behind what is transparent."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PixelLimits(_Part):
    """The limits that images are resized to, in pixels; None for no limit."""

    min: int | None = None
    max: int | None = None


class GridSize(_Part):
    """The coordinate grid."""

    bins: int
    scale: int


class ModelCard(_Part):
    """The content of coordexp.json.

    Attributes:
        format: version of the file format
        prompt: the user's message beside the image
        system: the system message, None for none
        rendered_prompt: both as the chat template of training renders them, with the placeholder of one image; None if
            it is not known
        chat_template_kwargs: settings of the chat template that a request has to state for this prompt
        markers: the family of object markers
        style: whether an answer is marked objects or JSON
        form: whether coordinates are tokens or plain numbers
        order: of the objects in a target
        geometry: of the targets
        max_vertices: most vertices of a polygon in a target
        max_objects: most objects in a target
        pixels: limits of the image size
        decoding: name of the run's first decoding
        grid: of the coordinates
        fingerprint: of coordinate tokens and markers; None without coordinate tokens
        base: `coord_codec.weights.weights_digest` of the base that an adapter was trained on; None for a whole model
        versions: of the packages that wrote the checkpoint
        image_processor: the class of the image processor, which names its backend; None if it is not known
        scored: the images that the run scores, as `evaluation.images` names them; None if it is not known
        names: labels of the training in the order of their class ids; none of an open vocabulary, of more than
            `MOST_NAMES`
        calibrations: maps of scores to probabilities, as `coord_eval.Calibration.to_dict` writes them, by
            `calibration_key`, with the digest of the `weights` that they were fitted on; empty until `calibrate` was
            called
    """

    format: Literal[1] = 1
    prompt: str
    system: str | None = None
    rendered_prompt: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    markers: str
    style: Literal["markers", "json"]
    form: Literal["tokens", "numbers"]
    order: str
    geometry: str = "box"
    max_vertices: int = 32
    max_objects: int
    pixels: PixelLimits = PixelLimits()
    decoding: str
    grid: GridSize
    fingerprint: str | None = None
    base: str | None = None
    versions: dict[str, str] = {}
    image_processor: str | None = None
    scored: Literal["heldout", "train", "none"] | None = None
    names: tuple[str, ...] = ()
    calibrations: dict[str, dict[str, Any]] = {}

    def other_pixels(self, image_processor: str) -> str | None:
        """Return a sentence about software that may make other pixels than in training; None without any.

        `image_processor` is the class of the one in use.
        """
        found = {name: installed for name in OF_PIXELS if (installed := installed_version(name))}
        now = {name: found[name] for name in found.keys() & self.versions.keys()} | {"image processor": image_processor}
        then = self.versions | {"image processor": self.image_processor or image_processor}
        differing = [f"{name} {then[name]} (now {now[name]})" for name in sorted(now) if then[name] != now[name]]
        if not differing:
            return None
        return f"trained with {', '.join(differing)}: resized images and transparent pixels may differ a little"

    @property
    def made_pixels(self) -> str:
        """The software that made pixels of images in training, in words; empty if the card does not state it."""
        named = {name: self.versions[name] for name in OF_PIXELS if name in self.versions}
        if self.image_processor is not None:
            named["image processor"] = self.image_processor
        return ", ".join(f"{name} {value}" for name, value in named.items())

    def write(self, folder: Path) -> None:
        """Write coordexp.json to a checkpoint's folder, atomically."""
        write_text(folder / CARD_FILE, self.model_dump_json(indent=2) + "\n")

    def calibration_of(
        self, decoding: Decoding, views: Sequence[str], folder: Path, only: Sequence[str] = ()
    ) -> Calibration | None:
        """Return the calibration for a decoding, views and forced names; an `InputError` if it is of other weights."""
        if (found := self.calibrations.get(calibration_key(decoding, views, only))) is None:
            return None
        record = read_json(folder / _EXPORT) if (folder / _EXPORT).is_file() else {}
        merged = [entry.get("adapter", {}).get("weights") for entry in record.get("history", ())[-1:]]
        if found.get("weights") not in (expected := [weights_digest(folder), *merged]):
            raise InputError(
                f"{folder / CARD_FILE}: calibrations: expected one of these weights ({expected[0]}), found one that "
                f"was fitted on others ({found.get('weights')}); calibrate again (coord-detect calibrate)"
            )
        from coord_eval import Calibration

        return Calibration.from_dict(found, f"{folder / CARD_FILE}: calibrations")

    def check_fingerprint(self, found: str | None, where: Path) -> None:
        """Raise `InputError` if the tokenizer in a folder is not the one of the checkpoint's training.

        Its fingerprint, `found`, is None without coordinate tokens.
        """
        if self.fingerprint is not None and self.fingerprint != found:
            raise InputError(
                f"{where}: its tokenizer has the fingerprint {found}, the checkpoint's {CARD_FILE} names "
                f"{self.fingerprint}: other coordinate tokens, ids or markers; use the tokenizer that it was saved with"
            )

    def check_base(self, base: Path) -> None:
        """Raise `InputError` if a base has other weights than the one that the adapter was trained on."""
        if self.base is not None and self.base != (found := weights_digest(base)):
            raise InputError(
                f"{base}: its weights have the digest {found}, the {CARD_FILE} of the adapter names {self.base}: "
                "another base; restore the one of its training"
            )

    def check_rendered_prompt(self, found: str, where: Path) -> None:
        """Raise `InputError` if a chat template renders this card's prompt otherwise than in training."""
        expected = self.rendered_prompt
        if expected is None or found == expected:
            return
        pairs = enumerate(zip_longest(expected, found))
        start = next(i for i, (one, other) in pairs if one != other)
        raise InputError(
            f"{where}: its chat template asks with another prompt than the checkpoint was trained with, from character "
            f"{start} on: it has {found[start : start + 80] or 'nothing'!r}, the {CARD_FILE} of the checkpoint has "
            f"{expected[start : start + 80] or 'nothing'!r}; restore the chat_template.jinja of training"
        )


MEMORISED = (
    "this model was scored on its training images alone (evaluation.images: train): it may have memorised them, and "
    "what it finds in other images was never measured"
)


def memorised_note(folder: Path | None) -> list[str]:
    """Return a note if the run of a checkpoint scored the training images alone, by its card."""
    card = read_card(folder) if folder is not None else None
    return [MEMORISED] if card is not None and card.scored == "train" else []


def calibration_key(decoding: Decoding, views: Sequence[str], only: Sequence[str] = ()) -> str:
    """Return the key of a calibration: how boxes are read, the views that are fused, and the names that are forced.

    Example:
        >>> calibration_key(Decoding(grammar="markers", boxes="best_iou"), ["mirror", "classes"])
        'best_iou classes mirror'
        >>> calibration_key(Decoding(), [], ["red circle"])
        'tokens only=red circle'
    """
    return " ".join((decoding.boxes, *sorted(views), *(f"only={name}" for name in sorted(only))))


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_card(folder: Path) -> ModelCard | None:
    """Return the card of a checkpoint, or None if it has none.

    Raises:
        InputError: the file is not a valid card; the message names the field.
    """
    path = folder / CARD_FILE
    if not path.is_file():
        return None
    values = read_json(path)
    if isinstance(values, dict) and values.get("format", 1) != _FORMAT:
        wrote = ", ".join(
            f"{name} {value}" for name, value in (values.get("versions") or {}).items() if "coord-" in name
        )
        raise InputError(
            f"{path}: format: expected {_FORMAT}, which coord-detect {installed_version('coord-detect')} reads, found "
            f"{values['format']!r} of another version{f' ({wrote})' if wrote else ''}; install that version"
        )
    try:
        card = ModelCard.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "content"
        raise InputError(
            f"{path}: {field}: {first['msg'][:1].lower() + first['msg'][1:]}, found {first.get('input')!r:.80}; "
            "restore the file, or remove it to use the settings of the configuration instead"
        ) from None
    grid = CoordGrid()
    if (card.grid.bins, card.grid.scale) != (grid.bins, grid.scale):
        raise InputError(
            f"{path}: grid: the checkpoint has {card.grid.bins} bins of 1/{card.grid.scale}, this version "
            f"{grid.bins} of 1/{grid.scale}; its coordinates would be misinterpreted"
        )
    return card


def as_trained(config: Given, folder: Path) -> Given:
    """Return `config` with settings that the user did not set taken from the checkpoint's card, if it has one."""
    card = read_card(folder)
    return config if card is None else follow_card(config, card, folder)


def follow_card(config: Given, card: ModelCard, checkpoint: Path) -> Given:
    """Return `config` with the card's values for settings that the user did not set, except the system message.

    Raises:
        InputError: settings of the user contradict the card; the message names both values of each.
    """
    user_settings = _user_settings(config)
    trained = card.model_dump(include={"system", "form", *OF_DATA})
    trained |= {"pixels.min": card.pixels.min, "pixels.max": card.pixels.max}
    if card.style == "json" and user_settings.get("style", "json") == "json":
        user_settings.pop("markers", None)  # JSON has no markers
    shown = user_settings | ({"form": user_settings["form"] == "tokens"} if "form" in user_settings else {})
    contradictions = [
        f"{_KEYS[name]} is {shown[name]!r} and the checkpoint's {name} is {trained[name]!r}"
        for name, value in user_settings.items()
        if value != trained[name]
    ]
    if contradictions:
        raise InputError(
            f"the configuration disagrees with {checkpoint / CARD_FILE}: {'; '.join(contradictions)}; leave such "
            "settings out to use those that the checkpoint was trained with"
        )
    custom = config.custom
    if "form" not in user_settings:
        tokens = custom.coord_tokens.model_copy(update={"enabled": card.form == "tokens"})
        custom = custom.model_copy(update={"coord_tokens": tokens})
    data = {name: getattr(card, name) for name in OF_DATA}
    data |= {"min_pixels": card.pixels.min, "max_pixels": card.pixels.max}
    sections = {"data": config.data.model_copy(update=data), "custom": custom}
    if "decoding" not in config.evaluation.model_fields_set:
        if (decoding := decoding_named(card.decoding)) is None:
            raise InputError(f"{checkpoint / CARD_FILE}: decoding: expected a decoding, found {card.decoding!r}")
        sections["evaluation"] = config.evaluation.model_copy(update={"decoding": (decoding,)})
    filled = config.model_copy(update=sections).model_dump(mode="json")
    return check_settings(type(config), filled, f"the configuration with {checkpoint / CARD_FILE}")


def system_text(config: Settings) -> str | None:
    r"""Return the system message of `training.system`, read as ms-swift does: from a `.txt` file, or text with `\n`.

    Raises:
        InputError: the `.txt` file cannot be read.
    """
    value = config.training.get("system")
    if not value:
        return None
    if not isinstance(value, str):
        raise InputError(f"training.system: expected text or the name of a .txt file, found {value!r}")
    if not value.endswith(".txt"):
        return value.replace("\\n", "\n")
    return read_text(value) or None


_KEYS = {
    "prompt": "data.prompt",
    "system": "training.system",
    "markers": "data.markers",
    "style": "data.style",
    "form": "custom.coord_tokens.enabled",
    "order": "data.order",
    "geometry": "data.geometry",
    "max_vertices": "data.max_vertices",
    "max_objects": "data.max_objects",
    "pixels.min": "data.min_pixels",
    "pixels.max": "data.max_pixels",
}


def _user_settings(config: Settings) -> dict[str, Any]:
    """Return the settings that the user has set, under the card's names."""
    data, custom = config.data, config.custom
    settings = {name: getattr(data, name) for name in OF_DATA if name in data.model_fields_set}
    if "system" in config.training:
        settings["system"] = system_text(config)
    # A coordinate term with a weight implies coordinate tokens.
    if "enabled" in custom.coord_tokens.model_fields_set or custom.trains_coordinates:
        settings["form"] = "tokens" if custom.coord_tokens.enabled else "numbers"
    limits = {"pixels.min": data.min_pixels, "pixels.max": data.max_pixels}
    return settings | {name: value for name, value in limits.items() if value is not None}
