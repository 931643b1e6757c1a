"""What a sample asks for: all objects, the objects of some classes, one phrase, or what is not there."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from coord_codec import Instance
from coord_codec.records import ABSENT, UNCERTAIN, descriptions_in
from coord_trainer.config.sections import DataSection

_SIDES = re.compile("left|right", re.IGNORECASE)
_NO_SIDES = re.compile(
    "(?<![a-z])(?:leftover|leftist|cleft|righteous|rightful|bright|fright|upright|copyright|outright|downright|alright|"
    "birthright|forthright|wright|cartwright|playwright|shipwright|wheelwright)",
    re.IGNORECASE,
)
"""Words that hold the letters of a side and name none; class names such as turn_left, leftEye or rightarm name one."""

_MODES = ("all", "per_class", "class_list")
LONGEST_LIST = 5
"""Most classes that a query of `class_list` names."""


@dataclass(frozen=True)
class Query:
    """A question about an image.

    Attributes:
        prompt: the user's message
        classes: descriptions that the answer has, in any order; None for all
    """

    prompt: str
    classes: frozenset[str] | None = None

    def answer(self, instance: Instance) -> Instance:
        """Return the instance with the objects that answer the query."""
        if self.classes is None:
            return instance
        kept = tuple(found for found in instance.objects if found.desc in self.classes)
        return instance.model_copy(update={"objects": kept})


def phrase_of(instance: Instance) -> str | None:
    """Return the phrase that a record asks for, its key `query`; None for a record of all objects."""
    phrase = getattr(instance, "query", None)
    return phrase if isinstance(phrase, str) and phrase.strip() else None


def names_a_side(instance: Instance) -> bool:
    """Whether the phrase that a record asks for, or what an object is called, says left or right in English.

    Example:
        >>> names_a_side(Instance(image="a.jpg", objects=(), query="the leftmost cat"))
        True
    """
    texts = (phrase_of(instance) or "", *(found.desc for found in instance.objects))
    return any(_SIDES.search(_NO_SIDES.sub("", text)) is not None for text in texts)


def _known_absent(instance: Instance, classes: Sequence[str]) -> list[str]:
    """Return the classes that are not in the image, sorted: neither taught, ignored, refused nor left unannotated.

    A record whose key `absent` lists descriptions was searched for those alone.
    """
    searched = descriptions_in(instance, ABSENT)
    there = {found.desc for found in instance.objects}.union(descriptions_in(instance, UNCERTAIN) or ())
    return sorted(set(classes if searched is None else searched).intersection(classes) - there)


def draw_query(instance: Instance, data: DataSection, classes: Sequence[str], seed: int) -> Query:
    """Draw the query of a sample.

    Args:
        instance: the image; a record with a `query` asks for that phrase, and its `absent` and `uncertain` say what is
            known not to be there, and what may be
        data: `queries`, `negatives` and the prompts
        classes: descriptions of the whole set, among which those that are not in the image are found
        seed: of this image in this epoch

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
    present = sorted({found.desc for found in instance.targets})
    absent = _known_absent(instance, classes)
    if mode == "all" or not (present or absent):
        return Query(data.prompt)
    negative = not present or (bool(absent) and draw.random() < data.negatives)
    if mode == "per_class":
        asked = [draw.choice(absent if negative else present)]
    else:
        length = draw.randint(1, LONGEST_LIST)
        there = 0 if negative else draw.randint(1, min(length, len(present)))
        asked = [*draw.sample(present, there), *draw.sample(absent, min(length - there, len(absent)))]
        draw.shuffle(asked)
    return Query(data.class_prompt.replace("{classes}", ", ".join(asked)), frozenset(asked))
