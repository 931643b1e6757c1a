"""The objects of one sample's text by their place, and the ground truth that belongs to each.

Shapes: T positions of a row of labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coord_codec import CoordVocab, Geometry, SequenceLayout

Numbers = Sequence[float]
_NO_OBJECT = ("stray_marker", "stray_coordinate")
"""Omissions of a layout that do not stand in the place of an object, such as the rest of one that was cut off."""


@dataclass(frozen=True)
class Place:
    """An object of a text, or the place of one that cannot be used.

    Attributes:
        position: where it begins in the sample
        rows: the row of `supervised_rows` that predicts each coordinate, -1 for one that is not supervised; empty if
            it is incomplete or malformed
        decoded: its dequantised coordinates
        words: token ids of its description
    """

    position: int
    rows: tuple[int, ...] = ()
    decoded: tuple[float, ...] = ()
    words: tuple[int, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether all its coordinates are supervised."""
        return bool(self.rows) and -1 not in self.rows

    @property
    def hidden(self) -> bool:
        """Whether it is complete and none of its coordinates is supervised, as in a prompt."""
        return bool(self.rows) and set(self.rows) == {-1}


@dataclass(frozen=True)
class Columns:
    """A row of the batch that contains a sample, by column.

    Attributes:
        labels_T: the labels
        ids_T: the token ids; the labels if the ids are not known
        rows_T: the row of `supervised_rows` that predicts the token; -1 for none
    """

    labels_T: list[int]
    ids_T: list[int]
    rows_T: list[int]


def places_of(
    sample: int, layout: SequenceLayout, start: int, row: Columns, vocab: CoordVocab, kind: Geometry
) -> list[Place]:
    """Return the places of all objects of a sample, which begins at column `start`, in the order of its text.

    Raises:
        ValueError: if the layout and the labels disagree on the positions of coordinates
    """
    places = [Place(gap.start) for gap in layout.reasons if gap.reason.value not in _NO_OBJECT]
    for found in layout.objects:
        columns = [start + position for position in found.coord_positions]
        for column in columns:
            label = row.labels_T[column] if 0 <= column < len(row.labels_T) else None
            if label is None or (label >= 0 and label not in vocab.ids):
                raise ValueError(
                    f"sample {sample}: the layout has a coordinate in column {column}, the label there is {label}; "
                    "do batch_rows and starts say where the sample lies in labels_BT, and was it cut off afterwards?"
                )
        if not kind.fits(len(columns)):
            places.append(Place(found.coord_positions[0]))
            continue
        rows = tuple(row.rows_T[column] for column in columns)
        decoded = tuple(vocab.grid.dequantize(k) for k in found.bins)
        words = tuple(row.ids_T[start + position] for position in found.desc_positions)
        places.append(Place(found.coord_positions[0], rows, decoded, words))
    return sorted(places, key=lambda place: place.position)


def join(places: Sequence[Place], boxes: Sequence[Numbers] | None, vocab: CoordVocab) -> list[int | None]:
    """Return the index of the ground truth of each place; None for a place that has none.

    With one box for each place, or for each place that is at least partly supervised, they belong together in this
    order. Otherwise the text was cut, objects were masked, or a prompt has objects of its own: then the order
    is kept, and most boxes must agree with the labels.

    Args:
        places: the places of a sample in the order of its text
        boxes: its ground-truth boxes in the order of the full text
        vocab: the coordinate tokens
    """
    if boxes is None:
        return [None] * len(places)
    count = len(boxes)
    seen = [i for i, place in enumerate(places) if not place.hidden]
    if count == len(places):
        return list(range(count))
    if count == len(seen):
        return [seen.index(i) if i in seen else None for i in range(len(places))]

    def agreeing(place: int, index: int) -> bool:
        return agree(boxes[index], places[place].decoded, vocab)

    if count > len(places):
        return list(_increasing(len(places), count, agreeing))
    found: list[int | None] = [None] * len(places)
    for index, place in enumerate(_increasing(count, len(places), lambda index, place: agreeing(place, index))):
        found[place] = index
    return found


def agree(true: Numbers, decoded: Numbers, vocab: CoordVocab) -> bool:
    """Return whether coordinates are those of the labels up to rounding."""
    # Rounding changes a coordinate by at most half a bin, clamping at the upper end by a whole bin.
    return len(true) == len(decoded) and all(
        abs(side - label) * vocab.grid.scale < 1.5 for side, label in zip(true, decoded, strict=True)
    )


def _increasing(fewer: int, more: int, agreeing: Callable[[int, int], bool]) -> list[int]:
    """Return an increasing index in 0..more-1 for each of 0..fewer-1, with most agreements, then most neighbours.

    Of several solutions the one with the smallest indices is taken. This is a dynamic programme over pairs.
    """
    worth = fewer + 1  # an agreement counts more than all neighbours together
    best: list[list[int]] = []
    before: list[list[int]] = []
    for i in range(fewer):
        scores, origins = [-1] * more, [-1] * more
        origin = -1  # the best index of i - 1 that is no neighbour of j
        for j in range(i, more - (fewer - 1 - i)):
            score = 0
            if i:
                if j >= 2 and best[-1][j - 2] > (best[-1][origin] if origin >= 0 else -1):
                    origin = j - 2
                score = best[-1][origin] if origin >= 0 else -1
                origins[j] = origin
                if best[-1][j - 1] >= 0 and best[-1][j - 1] + 1 > score:
                    score, origins[j] = best[-1][j - 1] + 1, j - 1
            scores[j] = score + worth * agreeing(i, j)
        best.append(scores)
        before.append(origins)
    found: list[int] = []
    index = max(range(more), key=best[-1].__getitem__) if fewer else 0
    for origins in reversed(before):
        found.append(index)
        index = origins[index]
    return found[::-1]
