"""A class list: only its descriptions are taught, scored and asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from coord_codec import AnnotationSet, Category, InputError, Instance

OTHER = "objects of other classes than data.classes names, left out"


def of_classes(instance: Instance, classes: Sequence[str] | None, notes: Counter[str]) -> Instance:
    """Return the instance with objects of these classes alone, and count the others."""
    if classes is None:
        return instance
    kept = tuple(found for found in instance.objects if found.desc in classes)
    notes[OTHER] += len(instance.objects) - len(kept)
    return instance.model_copy(update={"objects": kept}) if len(kept) < len(instance.objects) else instance


def class_categories(found: Sequence[Category], classes: Sequence[str] | None, source: str) -> tuple[Category, ...]:
    """Return the categories of a class list, with new ids for those that the annotations do not have.

    Raises:
        InputError: the annotations have none of them.
    """
    if classes is None:
        return tuple(found)
    known = {category.name: category for category in found}
    if not known.keys() & set(classes):
        raise InputError(
            f"{source}: data.classes: expected classes of these annotations ({', '.join(sorted(known)[:6])}), found "
            f"{', '.join(classes)}"
        )
    last = max((category.id for category in found if isinstance(category.id, int)), default=0)
    new = [name for name in classes if name not in known]
    added = tuple(Category(last + n, name) for n, name in enumerate(new, start=1))
    return (*(category for category in found if category.name in classes), *added)


def select_classes(
    found: AnnotationSet, classes: Sequence[str] | None, source: str, notes: Counter[str]
) -> AnnotationSet:
    """Return a set with the objects, rows and categories of a class list; of all when it is None."""
    if classes is None:
        return found
    categories = class_categories(found.categories, classes, source)
    place = {category: number for number, category in enumerate(categories)}
    new = {number: place[category] for number, category in enumerate(found.categories) if category in place}
    tables = found.tables and replace(
        found.tables,
        annotations=tuple(
            row._replace(category=new[row.category]) for row in found.tables.annotations if row.category in new
        ),
    )
    instances = tuple(of_classes(instance, classes, notes) for instance in found.instances)
    return replace(found, instances=instances, categories=categories, tables=tables)
