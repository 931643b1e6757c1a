"""`AnsweringModel`: a checkpoint in this process or a served model, with all settings that its answers depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from PIL import Image

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.problems import check_description
from coord_detect.answers.finish import Finish, ScoreThreshold, answer_settings
from coord_detect.answers.objects import ImageDetections, read_objects
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
    from coord_detect.answers.local import LocalEngine
    from coord_eval import AnswerSettings, Calibration

_LEAST_BATCH = 8
"""Number of views of few images that are answered together, at least."""


class Engine(Protocol):
    """Generates answers: a checkpoint in this process, or a server."""

    @property
    def name(self) -> str:
        """The folder of a checkpoint, or the model's name on a server."""

    @property
    def max_new_tokens(self) -> int:
        """The length limit of an answer."""

    @property
    def concurrency(self) -> int:
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
        labels: the labels of the boxes that are kept; empty for all
        only: names that answers are held to, so that each object has one of them; empty for no such limit
        names: labels of the images, which the view `classes` asks for unless `only` names others
        calibration: the map of scores to probabilities, None without one
        threshold: the least score of a box
        uncalibrated: why a model that was calibrated has no calibration here; empty if it has, or never was
        folder: the folder of the model; None for a served model without one
    """

    engine: Engine
    config: Settings
    labels: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
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
        only: Sequence[str] = (),
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
        is_adapter = (folder / "adapter_config.json").is_file()
        extra, what = ("adapter", "an adapter") if is_adapter else ("model", "a model in this process")
        with needs_extra(extra, f"{model}: {what}"):
            if is_adapter:
                import peft  # noqa: F401

                import coord_adapter  # noqa: F401 - before its base is opened
            from coord_detect.answers.local import LocalEngine
            from coord_detect.model.checkpoint import open_checkpoint
            from coord_detect.speed.of_checkpoint import check_speed

        kept, forced = frozenset(check_labels(labels)), frozenset(check_labels(only))
        loaded = open_checkpoint(folder, resolved)
        check_speed(resolved, loaded.family)
        engine = LocalEngine(str(folder), loaded, resolved)
        card = read_card(folder)
        names = tuple(names) or (card.names if card is not None else ())
        loaded_model = cls(engine, resolved, kept, names=names, folder=folder)._with(resolved, forced)
        return loaded_model.calibrated_as(folder) if calibrated else loaded_model

    def _with(self, config: Settings, only: frozenset[str]) -> AnsweringModel:
        """Return a detector with the same weights, another configuration and other names that answers are held to."""
        if only:
            _check_forcing(config)
        engine = cast("LocalEngine", self.engine).asked(config, self.names, self.trained_names, only)
        detector = replace(self, engine=engine, config=config, only=only)
        check_views(config.evaluation.views, detector.finish.question)
        return detector

    @property
    def trained_names(self) -> tuple[str, ...]:
        """The names of the training by the model's card; empty if it states none, as of an open vocabulary."""
        card = read_card(self.folder) if self.folder is not None else None
        return card.names if card is not None else ()

    @property
    def forced(self) -> tuple[str, ...]:
        """The names that answers are held to, fewer than the model would choose among; sorted."""
        return tuple(sorted(getattr(self.engine, "only", ())))

    def calibrated_as(self, folder: Path) -> AnsweringModel:
        """Return the detector with the calibration that the card in a checkpoint's folder has for its views.

        Raises:
            InputError: if the calibration was fitted on other weights
        """
        card = read_card(folder)
        section = self.config.evaluation
        calibration, lacks = None, ""
        if card:
            calibration = card.calibration_of(section.decoding[0], section.views, folder, self.forced)
        if card and card.calibrations and calibration is None:
            wanted = calibration_key(section.decoding[0], section.views, self.forced)
            lacks = f"scores are not calibrated: calibrated is {', '.join(card.calibrations)}, not {wanted}"
        return replace(self, calibration=calibration, uncalibrated=lacks)

    def with_threshold(self, **asked: float | None) -> AnsweringModel:
        """Return the detector with a least score; see `Finish.with_threshold`."""
        return replace(self, threshold=self.finish.with_threshold(**asked).threshold)

    @property
    def finish(self) -> Finish:
        """What becomes of the boxes of an answer."""
        data, section = self.config.data, self.config.evaluation
        asked = self.only or self.names or self.labels
        limit = getattr(self.engine, "max_pixels", None) or data.max_pixels
        question = Question(data.prompt, data.class_prompt, tuple(sorted(asked)), data.geometry, limit)
        return Finish(
            section.views,
            question,
            self.calibration,
            self.threshold,
            section.decoding[0].boxes,
            labels=self.labels,
            forced=self.forced,
        )

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
        return read_objects(record, image, self.finish, self.reading)

    def asking(
        self,
        prompt: str | None = None,
        labels: Sequence[str] | None = None,
        views: Sequence[str] | None = None,
        only: Sequence[str] | None = None,
    ) -> AnsweringModel:
        """Return the model with another prompt, labels, views or names to be held to; None keeps those that it has.

        Views and names come with their calibration; an empty list of labels or names removes the limit.

        Raises:
            InputError: if prompt or names of a served model are to change, or prompt, labels, views or names are
                invalid
        """
        is_local = hasattr(self.engine, "checkpoint")
        if not is_local and (prompt, only) != (None, None):
            raise InputError("asking: a model behind an endpoint keeps its prompt, and takes no only; set up another")
        free = self.config
        values = free.model_dump(mode="json")
        values["data"]["prompt"] = free.data.prompt if prompt is None else prompt
        values["evaluation"]["views"] = list(free.evaluation.views if views is None else views)
        if (prompt, views) != (None, None):
            free = check_settings(type(free), values, "asking")
        kept = self.labels if labels is None else frozenset(check_labels(labels))
        forced = self.only if only is None else frozenset(check_labels(only))
        asking = replace(self, labels=kept)
        asking = asking._with(free, forced) if is_local else replace(asking, config=free)
        check_views(asking.config.evaluation.views, asking.finish.question)
        same = (views, only) == (None, None)
        return asking if same or self.folder is None else asking.calibrated_as(self.folder)

    def unknown_names(self) -> list[str]:
        """Return a sentence for each label or name that is asked for and was none of the training, with the nearest.

        Nothing is said of a model whose card states no names.
        """
        if not (known := self.trained_names):
            return []
        by_letters = {name.casefold(): name for name in known}
        said = []
        for name in sorted((self.labels | self.only) - set(known)):
            (near,) = get_close_matches(name.casefold(), by_letters, n=1, cutoff=0.0)
            said.append(
                f"{name!r} is none of the {counted(len(known), 'name')} that the model was trained on; the nearest is "
                f"{by_letters[near]!r}"
            )
        return said

    @property
    def reading(self) -> AnswerSettings:
        """How texts become boxes, as it follows from the configuration."""
        return answer_settings(self.config, self.config.evaluation.decoding[0])


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


def _check_forcing(config: Settings) -> None:
    """Raise `InputError` if names cannot be forced on answers, or their probability would not be in the scores."""
    if not config.custom.coord_tokens.enabled:
        raise InputError(
            "only: the model answers in plain numbers, which no grammar holds to names; labels filters its boxes"
        )
    if config.data.style == "json":
        raise InputError(
            "only: the scores of answers in JSON do not contain the probability of a name, so that absent objects "
            "would score like present ones; labels filters its boxes"
        )
