"""`AnsweringModel`: a checkpoint in this process or a served model, with all settings that its answers depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from PIL import Image

from coord_codec import InputError
from coord_codec.problems import check_description
from coord_detect.answers.finish import Finish, ScoreThreshold, read_options
from coord_detect.answers.objects import ImageDetections, read_objects
from coord_detect.answers.token_limit import token_limit
from coord_detect.extras import needs_extra
from coord_detect.model.card import as_trained, calibration_key, read_card
from coord_detect.model.checkpoints import locate_model
from coord_detect.settings.load import check_settings
from coord_detect.settings.record import Settings
from coord_detect.views.asking import answer_views
from coord_detect.views.registry import check_views
from coord_detect.views.view import Question
from coord_eval.labelling import one_line

if TYPE_CHECKING:
    from coord_eval import Calibration

_LEAST_BATCH = 8
"""Number of views of few images that are answered together, at least."""


class Engine(Protocol):
    """Generates answers: a checkpoint in this process, or a server."""

    name: str
    max_new_tokens: int
    concurrency: int
    """Number of concurrent requests; 0 for an engine that answers batches."""

    def answer(
        self, images: Sequence[Image.Image], prompt: str | None = None, pixels: float = 1.0
    ) -> list[dict[str, Any]]:
        """Return text, finish reason and probabilities for each image.

        Args:
            images: upright and RGB
            prompt: the user's message; None for the usual one
            pixels: factor of the model's limits on the size of an image

        Raises:
            ValueError: if an image of the batch cannot be answered
            MemoryError: if there is too little memory for the batch
        """


@dataclass(frozen=True)
class AnsweringModel:
    """Answers images and reads the answers.

    Attributes:
        engine: generates the answers
        config: prompt, markers, decoding and limits
        labels: the only labels allowed in answers; empty for no limit
        free: `config` as it is without a limit on labels
        names: labels of the images, which the view `classes` asks for if `labels` is empty
        calibration: the map of scores to probabilities, None without one
        threshold: the least score of a box
        uncalibrated: why a model that was calibrated has no calibration here; empty if it has, or never was
        folder: the folder of the model; None for a served model without one
    """

    engine: Engine
    config: Settings
    labels: frozenset[str] = frozenset()
    free: Settings | None = None
    names: tuple[str, ...] = ()
    calibration: Calibration | None = None
    threshold: ScoreThreshold = field(default_factory=ScoreThreshold)
    uncalibrated: str = ""
    folder: Path | None = None

    @classmethod
    def load(
        cls,
        model: str | Path,
        config: Settings | None = None,
        names: Sequence[str] = (),
        labels: Sequence[str] = (),
        *,
        calibrated: bool = True,
    ) -> AnsweringModel:
        """Load a checkpoint, an adapter whose base is on disk, an export, or the last checkpoint of a run folder.

        The arguments are those of `Detector`.

        Raises:
            InputError: if there is no complete checkpoint, the configuration contradicts it, a label is invalid, or a
                view does not suit the question
        """
        folder = locate_model(Path(model))
        resolved = as_trained(config or Settings(), folder)
        with needs_extra("model", f"{model}: a model in this process"):
            from coord_detect.answers.local import LocalEngine
            from coord_detect.model.checkpoint import open_checkpoint
            from coord_detect.speed.of_checkpoint import check_speed

        allowed = frozenset(check_labels(labels))
        loaded = open_checkpoint(folder, resolved)
        check_speed(resolved, loaded.family)
        engine = LocalEngine(str(folder), loaded, resolved, 0)
        card = read_card(folder)
        names = tuple(names) or (card.names if card is not None else ())
        loaded_model = cls(engine, resolved, names=names, folder=folder)._with(resolved, allowed)
        return loaded_model.calibrated_as(folder) if calibrated else loaded_model

    def _with(self, free: Settings, allowed: frozenset[str]) -> AnsweringModel:
        """Return a detector with the same weights, another configuration and other allowed labels."""
        config = _limit_to_names(free) if allowed else free
        # Without that grammar answers must not depend on whether annotations or a folder name the images.
        held = config.evaluation.decoding[0].grammar == "names"
        names = (allowed or frozenset(self.names)) if held else frozenset()
        tokenizer = self.engine.checkpoint.processor.tokenizer
        limit = config.evaluation.max_new_tokens or token_limit(config, tokenizer, names)
        engine = replace(self.engine, config=config, names=names, max_new_tokens=limit)
        detector = replace(self, engine=engine, config=config, labels=allowed, free=free)
        check_views(config.evaluation.views, detector.finish.question)
        return detector

    def calibrated_as(self, folder: Path) -> AnsweringModel:
        """Return the detector with the calibration that the card in a checkpoint's folder has for its views.

        Raises:
            InputError: if the calibration was fitted on other weights
        """
        card = read_card(folder)
        section = self.config.evaluation
        calibration = card and card.calibration_of(section.decoding[0], section.views, folder)
        lacks = ""
        if card and card.calibrations and calibration is None:
            wanted = calibration_key(section.decoding[0], section.views)
            lacks = f"scores are not calibrated: calibrated is {', '.join(card.calibrations)}, not {wanted}"
        return replace(self, calibration=calibration, uncalibrated=lacks)

    def with_threshold(self, **asked: float | None) -> AnsweringModel:
        """Return the detector with a least score; see `Finish.with_threshold`."""
        return replace(self, threshold=self.finish.with_threshold(**asked).threshold)

    @property
    def finish(self) -> Finish:
        """What becomes of the boxes of an answer."""
        data, section = self.config.data, self.config.evaluation
        labels = self.labels or self.names
        limit = getattr(self.engine, "max_pixels", None) or data.max_pixels
        question = Question(data.prompt, data.class_prompt, tuple(sorted(labels)), data.geometry, limit)
        return Finish(section.views, question, self.calibration, self.threshold, section.decoding[0].boxes)

    def answers(self, images: Sequence[Image.Image], at_once: int | None = None) -> list[dict[str, Any]]:
        """Return the answers to upright RGB images and to their views.

        `at_once` images, views among them, are answered together; by default as many as there are, but at
        least 8.
        """
        if not images:
            return []
        size = at_once or max(len(images), _LEAST_BATCH)
        finish = self.finish
        return answer_views(finish.views, images, finish.question, self._answers, size)

    def _answers(self, images: Sequence[Image.Image], prompt: str | None, pixels: float) -> list[dict[str, Any]]:
        """Return the engine's answers; halves a batch that fails, so that only the image at fault has none."""
        usual = prompt is None and pixels == 1
        try:
            return self.engine.answer(images) if usual else self.engine.answer(images, prompt, pixels)
        except InputError:
            raise
        except (ValueError, MemoryError) as error:
            if len(images) == 1:
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                return [{"text": None, "finish_reason": "error", "error": reason}]
        half = len(images) // 2
        return self._answers(images[:half], prompt, pixels) + self._answers(images[half:], prompt, pixels)

    def read(self, record: Mapping[str, Any], image: Image.Image | None = None) -> ImageDetections:
        """Return the objects of an answered record of predictions.jsonl; `image` is kept for drawing."""
        return read_objects(record, image, self.labels, self.finish, **self.reading)

    def asking(
        self, prompt: str | None = None, labels: Sequence[str] | None = None, views: Sequence[str] | None = None
    ) -> AnsweringModel:
        """Return the model with another prompt, other labels or other views; None keeps those that it has.

        Views come with their calibration; an empty list of labels removes the limit.

        Raises:
            InputError: if prompt or labels of a served model are to change, or prompt, labels or views are invalid
        """
        is_local = hasattr(self.engine, "checkpoint")
        if not is_local and (prompt, labels) != (None, None):
            raise InputError("asking: a model behind an endpoint keeps its prompt and labels; set up another one")
        free = self.free or self.config
        values = free.model_dump(mode="json")
        values["data"]["prompt"] = free.data.prompt if prompt is None else prompt
        values["evaluation"]["views"] = list(free.evaluation.views if views is None else views)
        if (prompt, views) != (None, None):
            free = check_settings(type(free), values, "asking")
        allowed = self.labels if labels is None else frozenset(check_labels(labels))
        asking = self._with(free, allowed) if is_local else replace(self, config=free)
        check_views(asking.config.evaluation.views, asking.finish.question)
        return asking if views is None or self.folder is None else asking.calibrated_as(self.folder)

    @property
    def reading(self) -> dict[str, Any]:
        """Keyword arguments of `read_objects` that follow from the configuration."""
        return read_options(self.config, self.config.evaluation.decoding[0])


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels sorted and once each; an `InputError` for one that cannot be part of an answer."""
    if isinstance(labels, str):
        raise InputError(f"labels: expected a list of labels, found the text {labels!r}; put it into a list")
    for label in labels:
        if not isinstance(label, str):
            raise InputError(f"label {label!r}: expected text, found {type(label).__name__}")
        try:
            check_description(label)
        except ValueError as error:
            raise InputError(f"label {label!r}: {error}") from None
        if label != one_line(label):
            raise InputError(f"label {label!r}: expected one line without white space around it")
    return tuple(sorted(set(labels)))


def _limit_to_names(config: Settings) -> Settings:
    if not config.custom.coord_tokens.enabled:  # plain numbers have no grammar: other labels are dropped after decoding
        return config
    held = config.evaluation.decoding[0].model_copy(update={"grammar": "names"})
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"decoding": (held,)})})
