"""Restricts annotations to a class list: other descriptions are not trained, scored or queried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from coord_codec import BoxTable, Category, InputError, Instance, Problem

OTHER = "objects of other classes than those asked for, left out"


def usable(
    records: Iterable[Instance],
    faults: Iterable[Problem | None],
    classes: Sequence[str] | None,
    problems: list[Problem],
    notes: Counter[str],
) -> Iterator[Instance]:
    """Yield the records whose image can be used, with only the objects of a class list.

    Args:
        records: the records as read
        faults: why the image of each cannot be used; None if it can
        classes: descriptions to keep; None for all
        problems: extended by the faults
        notes: updated with counts of notes
    """
    for record, fault in zip(records, faults, strict=True):
        if fault is not None:
            problems.append(fault)
            continue
        kept = record.objects if classes is None else tuple(o for o in record.objects if o.desc in classes)
        notes[OTHER] += len(record.objects) - len(kept)
        yield record if len(kept) == len(record.objects) else record.model_copy(update={"objects": kept})


def class_categories(stated: Sequence[Category], classes: Sequence[str] | None, source: str) -> tuple[Category, ...]:
    """Return the categories of a class list, with new ids for classes that the annotations do not have.

    Raises:
        InputError: the annotations have none of the classes.
    """
    if classes is None:
        return tuple(stated)
    by_name = {category.name: category for category in stated}
    if not by_name.keys() & set(classes):
        raise InputError(
            f"{source}: classes: expected classes of these annotations ({', '.join(sorted(by_name)[:6])}), found "
            f"{', '.join(classes)}"
        )
    last = max((category.id for category in stated if isinstance(category.id, int)), default=0)
    new = [name for name in classes if name not in by_name]
    added = tuple(Category(last + n, name) for n, name in enumerate(new, start=1))
    return (*(category for category in stated if category.name in classes), *added)


def absent_classes(stated: Sequence[Category], classes: Sequence[str] | None) -> tuple[str, ...]:
    """Return a note if a class list names classes that the annotations do not have, such as misspelt ones."""
    names = {category.name for category in stated}
    if not (absent := [name for name in classes or () if name not in names]):
        return ()
    some = "a class" if len(absent) == 1 else f"{len(absent)} classes"
    return (f"the list of classes names {some} that these annotations do not have: {', '.join(absent)}",)


def table_of_classes(table: BoxTable | None, stated: Sequence[Category], kept: Sequence[Category]) -> BoxTable | None:
    """Return the rows of a COCO file with only the boxes of the categories `kept` of those that it states."""
    if table is None or stated == kept:
        return table
    index = {category: number for number, category in enumerate(kept)}
    new_L = np.array([index.get(category, -1) for category in stated], np.int64)
    chosen = table.take(new_L[table.label_N] >= 0)
    return replace(chosen, label_N=new_L[chosen.label_N], labels=tuple(category.name for category in kept))
