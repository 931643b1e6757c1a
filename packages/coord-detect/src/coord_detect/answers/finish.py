"""What becomes of the boxes of an answer: views are fused, scores calibrated, and boxes below a threshold left out."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_codec import CoordGrid, InputError
from coord_codec.files import write_text
from coord_detect.views.asking import VIEWS_KEY, looks_of
from coord_detect.views.registry import views_of
from coord_detect.views.view import WHOLE, Question, in_image
from coord_eval import AnswerSettings

if TYPE_CHECKING:
    from coord_detect.settings.decoding import Decoding
    from coord_detect.settings.record import Settings
    from coord_eval import Calibration, ScoredObject

BOXES_FILE = "boxes.json"
"""The file beside predictions that counts what was fused, and states calibration and threshold."""
FUSED = "fused"
"""Key of a record under which the counts lie; where it is, `objects` are not those of the text alone."""
IMAGE_WEIGHT = 1.5
"""Weight of the image itself in the fusion, where each view has 1.

Where a view misleads a model, as the mirror image misleads one that has memorised its images, boxes that only the view
has come after those of the image; with equal weights they would be among them.
"""
_BY_VIEW = ("boxes", "merged", "duplicate", "alone", "dropped")
_IN_ALL = ("boxes", "objects", "cut", "joined", "names_a_side", "other_label", "below_threshold", "uncalibrated")


@dataclass(frozen=True)
class ScoreThreshold:
    """The least score of a box, and where it comes from.

    Attributes:
        value: boxes with a lower score are left out; 0 keeps all
        asked: `min_score`, `precision` or `recall`, and the value that was asked for
        expected: precision and recall to be expected, in all and for each class; empty without a calibration
    """

    value: float = 0.0
    asked: tuple[str, float] | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Read:
    """The objects of the answer to one view, its pieces that were dropped, and whether scores can be calibrated."""

    objects: list[ScoredObject]
    dropped: Counter[str]
    has_source: bool


@dataclass(frozen=True)
class _Seen:
    """The objects of all views in the image: the word of each view, its objects, its region, and what was left out."""

    words: list[str]
    views: list[list[ScoredObject]]
    regions: list[Any]
    counts: Counter[str]


@dataclass(frozen=True)
class Finish:
    """What becomes of the boxes of an answer.

    Attributes:
        views: the further views of each image, as words
        question: what is asked
        calibration: the map of scores to probabilities; None without one
        threshold: the least score
        boxes: how the boxes of answers are computed, which a calibration is for
        labels: the labels of the boxes that are kept; empty for all
        forced: names that answers are held to, which a calibration is for
    """

    views: tuple[str, ...] = ()
    question: Question = field(default_factory=lambda: Question(""))
    calibration: Calibration | None = None
    threshold: ScoreThreshold = ScoreThreshold()
    boxes: str = "tokens"
    labels: frozenset[str] = frozenset()
    forced: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether boxes may differ from those of the answer."""
        return bool(self.views or self.calibration or self.threshold.value or self.labels)

    def objects(
        self, record: Mapping[str, Any], reading: AnswerSettings = AnswerSettings()
    ) -> tuple[list[ScoredObject], dict[str, int], dict[str, Any]]:
        """Return the objects of a record, the pieces of its answers that were dropped, and what was fused.

        The record has the answers to views under `views`. `reading` says how texts become boxes.
        Labels are filtered last, so that those that are kept have the boxes and scores that they have without it.
        """
        read = self._read(record, reading)
        seen = self._in_image(record, read)
        objects, by_view = self._fused(seen)
        kept, changed = self._kept(objects, all(view.has_source for view in read))
        counts = seen.counts + changed
        if self.views:
            counts += by_view.pop("")
        else:
            counts.update(boxes=len(objects), objects=len(objects))
        dropped = sum((view.dropped for view in read), Counter({"other_label": counts["other_label"]}))
        summary = {name: counts[name] for name in _IN_ALL if counts[name] or name in ("boxes", "objects")}
        return kept, dict(dropped), {"views": {word: dict(row) for word, row in by_view.items()}, **summary}

    def _read(self, record: Mapping[str, Any], reading: AnswerSettings) -> list[_Read]:
        """Return the objects of the image and of each of its views, where the view has them."""
        answers = record.get(VIEWS_KEY, ())
        read = []
        for answer in ({**record, VIEWS_KEY: ()}, *({**record, **answer, "tile": None} for answer in answers)):
            found, pieces, has_source = self._scored(answer, reading)
            read.append(_Read(found, Counter(pieces), has_source))
        return read

    def _in_image(self, record: Mapping[str, Any], read: Sequence[_Read]) -> _Seen:
        """Return the objects of all views where they are in the image; several questions about it are one view.

        Raises:
            InputError: if the record was answered with other views
        """
        size = record["width"], record["height"]
        shown = looks_of(self.views, *size, self.question)
        answered = [answer["view"] for answer in record.get(VIEWS_KEY, ())]
        if [word for word, _ in shown] != answered:
            raise InputError(
                f"{record.get('image')}: expected the answers of {len(shown)} views ({', '.join(self.views) or 'none'})"
                f", found {len(answered)}; answer the images anew with --force"
            )
        seen = _Seen(["image"], [list(read[0].objects)], [WHOLE], Counter())
        rules = dict(zip(self.views, views_of(self.views), strict=True))
        for (word, look), view in zip(shown, read[1:], strict=True):
            kept = [item for item in view.objects if rules[word].keeps(item.desc)]
            seen.counts["names_a_side"] += len(view.objects) - len(kept)
            back = look.back(*size)
            moved = [in_image(item, back) for item in kept]
            if look.prompt is not None and word == seen.words[-1]:
                seen.views[-1] += moved
                continue
            seen.words.append(word)
            seen.views.append(moved)
            seen.regions.append(look.region(*size))
        return seen

    def _fused(self, seen: _Seen) -> tuple[list[ScoredObject], dict[str, Counter[str]]]:
        """Return the objects of all views as one set, and the counts of each view, of all under an empty word.

        Of the image alone, each box stays as it is.
        """
        if not self.views:
            return list(seen.views[0]), {}
        from coord_eval import fuse

        weights = [IMAGE_WEIGHT, *[1.0] * (len(seen.views) - 1)]
        fused = fuse(seen.views, weights=weights, regions=seen.regions)
        by_view = {"": Counter({name: fused.counts[name] for name in ("boxes", "objects", "cut", "joined")})}
        for word, row in zip(seen.words, fused.counts["views"], strict=False):
            by_view.setdefault(word, Counter()).update({name: row[name] for name in _BY_VIEW})
        # By the weights, duplicates within the image's own answer can bring a score above 1.
        return [item._replace(score=min(item.score, 1.0)) for item in fused.objects], by_view

    def _kept(self, objects: list[ScoredObject], has_source: bool) -> tuple[list[ScoredObject], Counter[str]]:
        """Return the objects with the labels, and calibrated scores of at least the threshold; counts the others."""
        counts: Counter[str] = Counter()
        if self.calibration is not None and has_source:
            objects = self.calibration.apply(objects)
        elif self.calibration is not None:
            counts["uncalibrated"] += len(objects)
        named = [item for item in objects if not self.labels or item.desc in self.labels]
        counts["other_label"] += len(objects) - len(named)
        kept = [item for item in named if item.score >= self.threshold.value]
        counts["below_threshold"] += len(named) - len(kept)
        return kept, counts

    def _scored(self, answer: Mapping[str, Any], reading: AnswerSettings) -> tuple[Any, Any, bool]:
        """Return objects, dropped pieces, and whether the scores are of the source that the calibration is for."""
        from coord_eval import scored_objects as read

        if not has_distributions(answer):
            reading = replace(reading, boxes="tokens")
        if self.calibration is None:
            return *read(answer, answers=reading), False
        try:
            return *read(answer, answers=reading, score_source=self.calibration.score_source), True
        except InputError:  # a server gave no probabilities
            return *read(answer, answers=reading), False

    def write_counts(self, folder: Path, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Write and return boxes.json: the counts of all records together, the calibration and the threshold."""
        total: Counter[str] = Counter()
        by_view: dict[str, Counter[str]] = {}
        counts = [record[FUSED] for record in records if FUSED in record]
        for row in counts:
            total.update({name: row.get(name, 0) for name in _IN_ALL})
            for word, values in row.get("views", {}).items():
                by_view.setdefault(word, Counter()).update(values)
        record: dict[str, Any] = {
            "views": list(self.views),
            "labels": sorted(self.labels),
            "fusion": {"views": {word: dict(values) for word, values in by_view.items()}, **total} if counts else {},
            "calibrated": self.calibration is not None,
        }
        if self.calibration is not None:
            record["calibration"] = {"rests_on": dict(self.calibration.rests_on)}
        if self.threshold.asked is not None:
            name, value = self.threshold.asked
            record["threshold"] = {name: value, "min_score": self.threshold.value, **self.threshold.expected}
        write_text(folder / BOXES_FILE, json.dumps(record, indent=1) + "\n")
        return record

    def with_threshold(
        self, min_score: float | None = None, precision: float | None = None, recall: float | None = None
    ) -> Finish:
        """Return what keeps the boxes of at least a score, or of the score that gives a precision or recall.

        Raises:
            InputError: if several are given, one is out of range or cannot be reached, or there is no calibration
        """
        asked = asked_threshold(min_score, precision, recall)
        if not asked:
            return self
        name, value = asked
        if name == "min_score":
            return replace(self, threshold=ScoreThreshold(value, (name, value)))
        if self.calibration is None:
            words = [f"evaluation.decoding.boxes={self.boxes}"] * (self.boxes != "tokens")
            words += [f"--views {','.join(self.views)}"] if self.views else []
            words += [f"--only {shlex.quote(label)}" for label in self.forced]
            forced = ", and those of names that answers are held to need a map of their own" if self.forced else ""
            kind = " for these boxes" if words else ""
            raise InputError(
                f"{name}: the model's scores are not calibrated{kind}{forced}, so that no "
                f"{name} can be promised; calibrate it first: "
                f"{' '.join(['coord-detect calibrate MODEL ANNOTATIONS', *words])}"
            )
        wanted: dict[str, Any] = {name: value}
        chosen = self.calibration.choose(**wanted)
        return replace(self, threshold=ScoreThreshold(chosen.value, (name, value), {"expected": chosen.to_dict()}))


def asked_threshold(min_score: float | None, precision: float | None, recall: float | None) -> tuple[str, float] | None:
    """Return name and value of the threshold asked for; an `InputError` for several, or a wrong value."""
    given = {"min_score": min_score, "precision": precision, "recall": recall}
    named = [(name, value) for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(
            f"{' and '.join(name for name, _ in named)}: each states which boxes are kept; give one of them"
        )
    for name, value in named:
        if not 0 <= value <= 1 or (name != "min_score" and not value):
            least = "from 0" if name == "min_score" else "above 0 and up"
            raise InputError(f"{name}: expected a number {least} to 1, found {value}")
    return named[0] if named else None


def answer_settings(config: Settings, decoding: Decoding) -> AnswerSettings:
    """Return how texts become boxes, as it follows from a configuration."""
    # A run without coordinate tokens learns to write numbers from 0 to the grid's scale.
    scale = None if config.custom.coord_tokens.enabled else float(CoordGrid().scale)
    return AnswerSettings(boxes=decoding.score_boxes, scale=scale, geometry=config.data.geometry)


def has_distributions(record: Mapping[str, Any]) -> bool:
    """Return whether a record has mean and quantiles of its coordinates; a server without probabilities gives none."""
    return record.get("coord_quantiles") is not None and record.get("coord_expected") is not None
