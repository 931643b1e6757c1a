"""Restricts annotations to a class list: other descriptions are not trained, scored or queried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from coord_codec import AnnotationSet, Category, InputError, Instance

OTHER = "objects of other classes than data.classes names, left out"


def of_classes(instance: Instance, classes: Sequence[str] | None, notes: Counter[str]) -> Instance:
    """Return the instance with only the objects of these classes, and count the others."""
    if classes is None:
        return instance
    kept = tuple(target for target in instance.objects if target.desc in classes)
    notes[OTHER] += len(instance.objects) - len(kept)
    return instance.model_copy(update={"objects": kept}) if len(kept) < len(instance.objects) else instance


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
            f"{source}: data.classes: expected classes of these annotations ({', '.join(sorted(by_name)[:6])}), found "
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
    return (f"data.classes names {some} that these annotations do not have: {', '.join(absent)}",)


def select_classes(
    annotations: AnnotationSet, classes: Sequence[str] | None, source: str, notes: Counter[str]
) -> AnnotationSet:
    """Return a set with only the objects, rows and categories of a class list; unchanged if it is None."""
    if classes is None:
        return annotations
    categories = class_categories(annotations.categories, classes, source)
    index = {category: number for number, category in enumerate(categories)}
    new = {number: index[category] for number, category in enumerate(annotations.categories) if category in index}
    tables = annotations.tables and replace(
        annotations.tables,
        annotations=tuple(
            row._replace(category=new[row.category]) for row in annotations.tables.annotations if row.category in new
        ),
    )
    instances = tuple(of_classes(instance, classes, notes) for instance in annotations.instances)
    return replace(annotations, instances=instances, categories=categories, tables=tables)
