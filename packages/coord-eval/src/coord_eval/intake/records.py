"""The records that every source of predictions yields, and how they become answers or a table of boxes.

A reader of a file, a folder or an object only says what its records are and where they stand; a record has the fields
of `Prediction`, or those of a COCO result, and may name its image and its category.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_codec.json_numbers import NumberRows
from coord_eval.intake.results import Form, ResultColumns, ResultsList, plain_record
from coord_eval.intake.stated_shapes import SHAPES

if TYPE_CHECKING:
    from coord_eval.intake.prediction import Prediction

_PART = 1 << 13
"""Number of boxes of a results list that become columns at once."""
_OF_RESULTS = frozenset(("bbox", "category_id", *SHAPES))
"""Fields by which a record without a text is a result."""
Loaded: TypeAlias = "list[Prediction] | ResultsList"
"""Text answers, or the boxes of a results list."""


@dataclass(frozen=True)
class SourceRecords:
    """The records of a source.

    Attributes:
        parts: some numbers and records at a time
        place: where the record of a number stands, for messages
        form: what numbers, images and categories of results are
        images: names of answered images, of which some may have no record
        positions: number of images whose ids are positions in a list that names none, else None
        empty: what an error says if there is no record; "" where none is an empty results list
    """

    parts: Iterable[tuple[Sequence[int], Sequence[Any]]]
    place: Callable[[int], str]
    form: Form = Form.RESULTS
    images: Sequence[str] = ()
    positions: int | None = None
    empty: str = ""

    @classmethod
    def listed(cls, rows: Iterable[Any], name: str, **more: Any) -> SourceRecords:
        """Return the records of a list, which stand at `name[0]`, `name[1]`, ..."""
        return cls(in_parts(enumerate(rows)), lambda position: f"{name}[{position}]", **more)

    @classmethod
    def placed(cls, rows: Iterable[tuple[Any, str]], **more: Any) -> SourceRecords:
        """Return records that come with their places."""
        pairs = list(rows)
        return cls(in_parts((n, record) for n, (record, _) in enumerate(pairs)), lambda n: pairs[n][1], **more)

    def loaded(self, order: Sequence[int | str] | None = None) -> Loaded:
        """Return results if all records are such boxes, which the first one decides, else answers.

        Args:
            order: ids of the images whose answers stand in that order and name none; None if answers name their images

        Raises:
            InputError: naming record and field; or numbers of answers and images in `order` differ
        """
        columns = ResultColumns()
        first: tuple[int, Sequence[Any]] | None = None
        are_results = False
        answers: list[Prediction] = []
        for numbers, records in self.parts:
            are_plain = isinstance(records, NumberRows) or {*map(type, records)} == {dict}
            for number, record in () if are_plain else zip(numbers, records, strict=True):
                if not isinstance(record, Mapping):
                    raise InputError(
                        f'{self.place(number)}: expected an object as {{"image_id": 1, "text": "..."}}, found '
                        f"{type(record).__name__}"
                    )
            stated = [records.widths] if isinstance(records, NumberRows) else records
            if first is None:
                first = numbers[0], records
                are_results = _is_result(stated[0])
            if are_results and all(map(_is_result, stated)):
                columns.add(records, lambda n, numbers=numbers: self.place(numbers[n]))  # type: ignore[misc]
                continue
            from coord_eval.intake.prediction import prediction_of  # pydantic, which boxes do not need

            if are_results:  # no text beside an answer: the error says so
                prediction_of(plain_record(first[1][0]), self.place(first[0]))
            # Too many answers are refused below, where their number is known.
            unnamed = chain((order or ())[len(answers) :], repeat(None if order is None else ""))
            rows = zip(numbers, records, unnamed)  # noqa: B905
            answers += [prediction_of(plain_record(r), self.place(n), image_id) for n, r, image_id in rows]
        if first is None and self.empty:
            raise InputError(self.empty)
        if answers and order is not None and len(answers) != len(order):
            found, images = counted(len(answers), "answer"), counted(len(order), "image")
            raise InputError(f"in_order: {found} for {images} of the ground truth; answers in its order are as many")
        return answers or columns.finished(self.positions, form=self.form, images=self.images)


def in_parts(rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
    """Yield numbers and records some at a time."""
    remaining = iter(rows)
    while part := list(islice(remaining, _PART)):
        numbers, records = zip(*part, strict=True)
        yield numbers, records


def _is_result(record: Mapping[str, Any]) -> bool:
    return "text" not in record and ("bbox" in record or not _OF_RESULTS.isdisjoint(record))
