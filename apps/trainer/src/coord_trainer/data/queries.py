"""Queries of samples: for all objects, objects of some classes, one phrase, or classes that are absent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from coord_codec import Instance
from coord_codec.records import ABSENT, UNCERTAIN, descriptions_in, phrase_of
from coord_detect.views.sides import names_a_side
from coord_trainer.config.sections import DataSection

_MODES = ("all", "per_class", "class_list")
LONGEST_LIST = 5
"""Maximum number of classes in a query of `class_list`."""


@dataclass(frozen=True)
class Query:
    """A question about an image.

    Attributes:
        prompt: the user message
        classes: descriptions of the objects in the answer; None for all objects
    """

    prompt: str
    classes: frozenset[str] | None = None

    def answer(self, instance: Instance) -> Instance:
        """Return the instance with only the objects that answer the query."""
        if self.classes is None:
            return instance
        kept = tuple(target for target in instance.objects if target.desc in self.classes)
        return instance.model_copy(update={"objects": kept})


def refers_to_sides(instance: Instance) -> bool:
    """Return whether the phrase or a description of a record contains left or right in English.

    Example:
        >>> refers_to_sides(Instance(image="a.jpg", objects=(), query="the leftmost cat"))
        True
    """
    texts = (phrase_of(instance) or "", *(target.desc for target in instance.objects))
    return any(map(names_a_side, texts))


def _known_absent(instance: Instance, classes: Sequence[str]) -> list[str]:
    """Return the sorted classes known to be absent: none of their objects is a target, ignored, refused or uncertain.

    If a record has the key `absent`, only the descriptions listed there are known to be absent.
    """
    listed = descriptions_in(instance, ABSENT)
    present = {target.desc for target in instance.objects}.union(descriptions_in(instance, UNCERTAIN) or ())
    return sorted(set(classes if listed is None else listed).intersection(classes) - present)


def draw_query(instance: Instance, data: DataSection, classes: Sequence[str], seed: int) -> Query:
    """Draw the query of a sample at random.

    Args:
        instance: the record; its key `query` is used as the phrase, `absent` lists descriptions known to be absent,
            and `uncertain` those that may be present
        data: `queries`, `negatives` and the prompts
        classes: all descriptions of the set, from which absent ones are drawn
        seed: seed of this image in this epoch

    Example:
        >>> cat = {"desc": "cat", "bbox": [0, 0, 1, 1]}
        >>> data = DataSection(queries="per_class", negatives=0)
        >>> draw_query(Instance(image="a.jpg", objects=[cat]), data, ["cat", "dog"], seed=0).prompt
        'Describe all objects of these classes with their bounding boxes: cat'
    """
    if (phrase := phrase_of(instance)) is not None:
        return Query(data.class_prompt.replace("{classes}", phrase))
    draw = random.Random(seed)
    mode = draw.choice(_MODES) if data.queries == "mixed" else data.queries
    present = sorted({target.desc for target in instance.targets})
    absent = _known_absent(instance, classes)
    if mode == "all" or not (present or absent):
        return Query(data.prompt)
    is_negative = not present or (bool(absent) and draw.random() < data.negatives)
    if mode == "per_class":
        asked = [draw.choice(absent if is_negative else present)]
    else:
        count = draw.randint(1, LONGEST_LIST)
        present_count = 0 if is_negative else draw.randint(1, min(count, len(present)))
        asked = [*draw.sample(present, present_count), *draw.sample(absent, min(count - present_count, len(absent)))]
        draw.shuffle(asked)
    return Query(data.class_prompt.replace("{classes}", ", ".join(asked)), frozenset(asked))
