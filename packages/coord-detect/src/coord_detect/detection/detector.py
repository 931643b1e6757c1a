"""`Detector`: finds objects in images, with a checkpoint in this process or with servers of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from glob import has_magic
from itertools import islice
from pathlib import Path
from types import EllipsisType
from typing import Any, cast

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from coord_codec import InputError
from coord_codec.counts import counted
from coord_data.looking.image_paths import IMAGE_SUFFIXES
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.guesses import OF_DETECTOR, ClassNamesTheCall, NamesTheCall, refuse_arguments
from coord_detect.answers.image_input import check_image, open_image
from coord_detect.answers.objects import ImageDetections
from coord_detect.answers.records import ImageSource, prediction_records
from coord_detect.console import say
from coord_detect.detection.class_ids import ClassIds
from coord_detect.detection.image_sources import find_sources
from coord_detect.detection.results import Results
from coord_detect.environment import set_environment
from coord_detect.model.card import memorised_note, read_card
from coord_detect.served.served_model import open_served
from coord_detect.settings.load import check_settings, load_settings
from coord_detect.settings.record import Settings

Images = Any
"""One image (a path, a PIL image, an array `[height, width, 3]` of uint8 in RGB) or several: a folder, a pattern such
as `photos/*.jpg`, an array `[N, height, width, 3]`, or a list or generator of images."""


class Detector(NamesTheCall, metaclass=ClassNamesTheCall):
    """Finds objects in images.

    Example:
        >>> detector = Detector("runs/first-run")  # doctest: +SKIP
        >>> found = detector.predict("photos/street.jpg", min_score=0.5)  # doctest: +SKIP
        >>> found.labels, found.boxes_xyxy  # doctest: +SKIP
    """

    CALLS = OF_DETECTOR

    def __init__(
        self,
        model: str | Path | Sequence[str] | AnsweringModel,
        config: Settings | None = None,
        names: Sequence[str] = (),
        labels: Sequence[str] = (),
        *,
        only: Sequence[str] = (),
        settings: Sequence[str] = (),
        views: str | Sequence[str] = (),
        min_score: float | None = None,
        precision: float | None = None,
        recall: float | None = None,
        speed: str | None = None,
        calibrated: bool = True,
        name: str | None = None,
        folder: str | Path | None = None,
        grammar: str | None = None,
        concurrency: int = 8,
        timeout: float = 300.0,
        **guessed: Any,
    ) -> None:
        """Load a model, or set up the client of its servers.

        Args:
            model: a run folder (its best checkpoint by AP, else its last), a checkpoint, an adapter whose base is on
                disk, or an export; or the URL of an OpenAI-compatible server, or several of the same model
            config: settings of the answers; those that are not set are the checkpoint's (`coordexp.json`)
            names: class names, for a decoding that limits answers to them; those of the training if none are given
            labels: the labels of the boxes that are kept, with the scores that they have among all; none for all
            only: names that answers are held to: each object is called by one of them, also where the image shows
                others, and its score contains the probability of that name without this limit
            settings: words such as `evaluation.decoding.grammar=markers`, in place of `config`
            views: further views of each image, such as `mirror`, in place of those of the configuration
            min_score: boxes with a lower score are left out
            precision: the precision of the boxes that are kept, of a calibrated model
            recall: their recall, likewise; at most one of the three
            speed: `exact` in place of that of the configuration; see `evaluation.speed`
            calibrated: whether scores are those of the calibration that the model has, if any
            name: the model's name on the servers
            folder: the folder of the served model, whose `coordexp.json` has prompt, names and calibration
            grammar: `vllm` or `sglang`, whose requests for well-formed answers the servers understand
            concurrency: number of concurrent requests
            timeout: seconds that a request may take
            guessed: arguments of other libraries, which are refused with the one that does it

        Raises:
            InputError: if there is no complete checkpoint, settings contradict it, a label is invalid, a view does not
                suit the question, or the model is not calibrated and a precision or recall is asked for
            TypeError: if there is no such argument
        """
        refuse_arguments("Detector()", guessed)
        set_environment()
        if settings and config is not None:
            raise InputError("settings: config is given as well; put all of them into one")
        config = config or load_settings(Settings, None, settings)[0]
        asked: dict[str, Any] = {"views": _words(views)} if views else {}
        asked |= {"speed": speed} if speed is not None else {}
        if asked:
            values = config.model_dump(mode="json", exclude_unset=True)
            values["evaluation"] = values.get("evaluation", {}) | asked
            config = check_settings(type(config), values, "Detector")
        if isinstance(model, AnsweringModel):
            ready = model
        elif urls := _urls(model):
            if not name:
                raise InputError(f"{urls[0]}: name the model as the server calls it: Detector(URL, name=NAME)")
            place = Path(folder) if folder is not None else None
            ready = open_served(
                urls,
                name,
                place,
                config,
                labels,
                names,
                only=only,
                grammar=grammar,
                concurrency=concurrency,
                timeout=timeout,
                calibrated=calibrated,
            )
        else:
            for argument, value in (("name", name), ("folder", folder), ("grammar", grammar)):
                if value is not None:
                    raise InputError(f"{argument}: it is about a server, and {model} is none; give its URL first")
            ready = AnsweringModel.load(cast("str | Path", model), config, names, labels, only, calibrated=calibrated)
        self.model = ready.with_threshold(min_score=min_score, precision=precision, recall=recall)
        if not isinstance(model, AnsweringModel):
            for note in ready.unknown_names():
                say(f"note: {note}")
        card = read_card(ready.folder) if ready.folder is not None else None
        names = sorted(names) if isinstance(names, set | frozenset) else names
        self._ids = ClassIds(names or (card.names if card is not None else ready.names))

    @classmethod
    def load(cls, *words: Any, **named: Any) -> Detector:
        """Return `Detector(...)` with the same arguments."""
        return cls(*words, **named)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels in the order of the class ids: those of the training, then others in the order of their first use.

        Example:
            `detector.names[class_id]` is the label of a class id of any result.
        """
        return self._ids.names

    def __call__(self, images: Images, **options: Any) -> Any:
        """Return `predict` of the images."""
        return self.predict(images, **options)

    def predict(
        self,
        images: Images | EllipsisType = ...,
        *,
        min_score: float | None = None,
        precision: float | None = None,
        recall: float | None = None,
        labels: Sequence[str] | None = None,
        views: str | Sequence[str] | None = None,
        batch: int = 8,
        progress: bool = True,
        **guessed: Any,
    ) -> Any:
        """Find the objects in one image or in several.

        Args:
            images: a path, a PIL image or an array `[height, width, 3]` of uint8, whose channels are RGB (of OpenCV's
                BGR, `frame[..., ::-1]`); or several: a folder, a pattern, a list, an array `[N, height, width, 3]`, or
                a generator
            min_score: boxes with a lower score are left out, in place of the detector's threshold
            precision: the precision of the boxes that are kept, of a calibrated model
            recall: their recall, likewise
            labels: the labels of the boxes that are kept, in place of the detector's; an empty list keeps all
            views: further views, such as `mirror`, in place of the detector's
            batch: number of images that are answered together
            progress: whether a bar shows the progress of several images
            guessed: arguments of other libraries, which are refused with the one that does it

        Returns:
            `ImageDetections` of one image. Of several `Results`, a sequence, and of a generator an iterator: both are
            answered while they are read, and an image that cannot be answered has a result with `error`.

        Raises:
            InputError: if the one image cannot be decoded or answered, or something is no image
            TypeError: if there is no such argument
        """
        refuse_arguments("predict()", guessed)
        if images is ...:
            raise TypeError("predict() needs an image or several as its first argument")
        model = self.model
        if views is not None or labels is not None:
            model = model.asking(labels=labels, views=None if views is None else _words(views))
        if labels is not None:
            for note in model.unknown_names():
                say(f"note: {note}")
        model = model.with_threshold(min_score=min_score, precision=precision, recall=recall)
        if is_one(images):
            (found,) = self._answer(model, [images], 0)
            if found.error:
                raise InputError(f"{found.name}: {found.error}")
            return found
        size = model.engine.concurrency or batch
        if isinstance(images, Iterable) and not isinstance(images, str | Path | Sequence | np.ndarray):
            return self._answered(model, _expanded(images), None, size, progress)
        if isinstance(images, str | Path):
            items: list[Any] = [source.path for source in find_sources([str(images)]).images]
        else:
            items = list(_expanded(images))
        return Results(len(items), self._answered(model, iter(items), len(items), size, progress))

    def asking(
        self, prompt: str | None = None, labels: Sequence[str] | None = None, only: Sequence[str] | None = None
    ) -> Detector:
        """Return a detector with the same weights and class ids, and another prompt, labels or names to be held to.

        Args:
            prompt: the user's message; None keeps the present one
            labels: the labels of the boxes that are kept; an empty list keeps all, None those of now
            only: names that answers are held to; an empty list removes the limit, None keeps it

        Raises:
            InputError: if prompt or names of a served model are to change, or prompt, labels or names are invalid
        """
        other = Detector(self.model.asking(prompt, labels, only=only))
        other._ids = self._ids
        return other

    def _answered(
        self, model: AnsweringModel, items: Iterator[Any], count: int | None, size: int, progress: bool
    ) -> Iterator[ImageDetections]:
        """Yield the results of images in their order; says at the end which have no answer."""
        failed: list[ImageDetections] = []
        start = 0
        with tqdm(total=count, desc="predict", unit="img", disable=not progress) as bar:
            while chunk := list(islice(items, size)):
                for found in self._answer(model, chunk, start):
                    failed += [found] if found.error else []
                    bar.update()
                    yield found
                start += len(chunk)
        if failed:
            say(f"{counted(len(failed), 'image has', 'images have')} no answer; {failed[0].name}: {failed[0].error}")

    def _answer(self, model: AnsweringModel, items: Sequence[Any], start: int) -> list[ImageDetections]:
        """Return the result of each image, with `error` if it has no answer."""
        sources: dict[str, ImageSource] = {}
        answers: dict[str, dict[str, Any]] = {}
        for number, item in enumerate(items, start):
            name = item if isinstance(item, str | Path) else f"image-{number}.png"
            try:
                held = None if item is name else open_image(item)
                sources[str(number)] = ImageSource(Path(name), str(number), None, held)
            except InputError as error:
                answers[str(number)] = {"error": str(error).removeprefix("image: ")}
        for records in prediction_records(model, list(sources.values()), len(items), raw=True):
            answers |= {record["image"]: record for record in records}
        results = []
        for number, item in enumerate(items, start):
            name = str(item) if isinstance(item, str | Path) else f"image-{number}.png"
            found = self._result(model, name, answers[str(number)])
            source = sources.get(str(number))
            image = None if source is None else source.held or source.path
            results.append(replace(found, image=None if found.error else image))
        return results

    def _result(self, model: AnsweringModel, name: str, answer: dict[str, Any]) -> ImageDetections:
        if reason := answer.get("error"):
            return ImageDetections((), (0, 0), "", "error", name=name, error=str(reason))
        found = model.read(answer)
        return replace(found, name=name, numbers=tuple(map(self._ids.of, found.labels)))

    def __repr__(self) -> str:
        """Return a short card: the model, its names, its prompt, and what becomes of its boxes."""
        return "\n".join([f"Detector: {self.model.engine.name}", *(f"  {k}: {v}" for k, v in self._card().items())])

    def _repr_html_(self) -> str:
        from coord_codec.pages import fragment, table

        return fragment(table(("Detector", self.model.engine.name), self._card().items()))

    def _card(self) -> dict[str, str]:
        model, section = self.model, self.model.config.evaluation
        shown = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
        calibration = model.calibration
        scores = "not calibrated; " + model.uncalibrated if model.uncalibrated else "not calibrated"
        if calibration is not None:
            scores = f"probabilities, calibrated on {counted(calibration.rests_on['images'], 'image')}"
        card = {
            "servers": ", ".join(getattr(model.engine, "urls", ())),
            "names": f"{len(self.names)} ({shown})" if self.names else "not stated by the checkpoint",
            "labels": ", ".join(sorted(model.labels)),
            "only": ", ".join(model.forced),
            "prompt": model.config.data.prompt,
            "decoding": section.decoding[0].name,
            "views": ", ".join(section.views),
            "scores": scores,
            "note": " ".join(memorised_note(model.folder)),
            "least score": f"{model.threshold.value:.4g}" if model.threshold.value else "",
        }
        return {name: value for name, value in card.items() if value}


def is_one(images: Images) -> bool:
    """Return whether this is one image; a path is one unless it names a folder, a pattern or annotations.

    Raises:
        InputError: if it is neither an image nor several
    """
    if isinstance(images, str | Path):
        check_image(images)
        path = Path(images)
        return path.is_file() and path.suffix.lower() not in (".json", ".jsonl", ".csv")
    if isinstance(images, np.ndarray):
        return images.ndim != 4
    if isinstance(images, Iterable) and not isinstance(images, Image.Image | dict | bytes) and not _is_tensor(images):
        return False
    check_image(images)
    return True


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _expanded(images: Iterable[Any]) -> Iterator[Any]:
    """Yield the images, and those of folders and patterns among them; a file that does not exist has no answer."""
    for number, item in enumerate(images):
        if isinstance(item, str | Path):
            is_file = Path(item).is_file() and is_one(item)
            if is_file or (Path(item).suffix.lower() in IMAGE_SUFFIXES and not has_magic(str(item))):
                yield item
            else:
                yield from (source.path for source in find_sources([str(item)]).images)
            continue
        check_image(item, f"images[{number}]")
        yield item


def _urls(model: Any) -> tuple[str, ...]:
    """Return the URLs that a model is named by; none if it is on disk.

    Raises:
        InputError: it is neither one folder nor URLs alone
    """
    if not isinstance(model, str | Path | list | tuple):
        raise InputError(f"model: expected a folder, or the URL of a server, found {type(model).__name__}")
    several = isinstance(model, list | tuple)
    words = [str(word) for word in model] if isinstance(model, list | tuple) else [str(model)]
    urls = tuple(word for word in words if word.startswith(("http://", "https://")))
    if several and (not words or len(urls) < len(words)):
        others = [word for word in words if word not in urls]
        raise InputError(f"model: expected one folder, or URLs of servers of the same model, found the list {others}")
    return urls


def _words(views: str | Sequence[str]) -> list[str]:
    return [word for word in views.split(",") if word] if isinstance(views, str) else list(views)
