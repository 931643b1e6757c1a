"""Reads rows of Parquet files: an encoded image, and boxes in structures, in columns of lists, or one a row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coord_codec.files import InputError
from coord_data.formats.packed_sample import PackedSample, items_of, named_object, whole
from coord_data.remote import has_bytes, suffix_of
from coord_data.sources.which_field import BOXES, LISTS, PHRASES, chosen, label_of, only, photograph

_OF_A_ROW = ("area", "iscrowd", "is_crowd")
"""Further columns of an object that is a row."""
_NO_PIXELS = "rows whose image is a path or nothing (`to_parquet` of datasets embeds none), left out"


class _Columns(NamedTuple):
    """The columns of a file.

    Attributes:
        image: the encoded images
        holder: the structures that hold the boxes; empty where `box` is a column itself
        box: the boxes, in `holder`
        label: the classes, in `holder`; None if there are none
        names: names of class numbers
        is_row: whether a row has one box
    """

    image: str
    holder: str
    box: str
    label: str | None
    names: list[str]
    is_row: bool


def parquet_rows(file: Path, fields: Mapping[str, str], told: Counter[str]) -> Iterator[PackedSample]:
    """Yield the rows of a file with an image, and count what is left out."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(file) as table:
        columns = _columns(table.schema_arrow, fields, file, told)
        schema, row = table.schema_arrow, 0
        readable = pa.schema([field.with_type(_readable(field.type)) for field in schema])
        for batch in table.iter_batches(64):
            for record in batch.cast(readable, safe=False).to_pylist():
                image = record.pop(columns.image)
                path, content = (image.get("path"), image["bytes"]) if isinstance(image, dict) else (None, image)
                if content is None:
                    told[_NO_PIXELS] += 1
                else:
                    objects = _objects(record, columns)
                    name = path or f"{file.stem}-{row:07d}{suffix_of(content)}"
                    yield PackedSample(name, content, record, objects, columns.is_row, columns.label in PHRASES)
                row += 1


def _objects(record: dict[str, Any], columns: _Columns) -> list[dict[str, Any]]:
    """Return the objects of a row with `bbox` and `category`, or `desc`; numbers of a class have their name."""
    stated = record.pop(columns.holder) if columns.holder else record
    if columns.is_row:
        own = {key: stated[key] for key in (columns.box, columns.label or "", *_OF_A_ROW) if key in stated}
        items: list[Mapping[str, Any]] = [] if stated[columns.box] is None else [own]
    elif isinstance(stated, Mapping):
        items = list(items_of(stated, columns.box))
    else:
        items = [item for item in stated or () if item is not None]
    return [_object(item, columns) for item in items]


def _object(item: Mapping[str, Any], columns: _Columns) -> dict[str, Any]:
    label = whole(item.get(columns.label)) if columns.label else None
    if columns.names and type(label) is int:
        label = columns.names[label] if 0 <= label < len(columns.names) else None
    return named_object(item, columns.box, columns.label, label)


def _columns(schema: Any, fields: Mapping[str, str], file: Path, told: Counter[str]) -> _Columns:
    """Return which columns of a schema are read."""
    import pyarrow as pa

    where = str(file)
    features: Any = _features(schema.metadata)
    encoded = [field.name for field in schema if has_bytes(field.type)]
    image = photograph(encoded, fields, where)
    holders = {field.name: inner for field in schema if pa.types.is_struct(inner := _item(field.type))}
    boxes = [f"{name}.{inner.name}" for name, type in holders.items() for inner in type if inner.name in BOXES]
    boxes += [field.name for field in schema if field.name in BOXES and field.name not in holders]
    wanted = fields.get("boxes", "")
    fitting = [name for name in boxes if wanted in ("", name, name.partition(".")[0])]
    if wanted and not fitting:
        chosen(boxes, "boxes", fields, where)
    usual = [name for name in fitting if name.partition(".")[0] in LISTS]
    found = only(usual if len(usual) == 1 else fitting, "boxes", where)
    if image is None or found is None:
        besides = f"; {', '.join(encoded)} may be masks: --fields image={encoded[0]}" if encoded and not image else ""
        raise InputError(
            f"{file}: a Parquet file; expected a column of encoded images and one of boxes ({', '.join(BOXES)}), found "
            f"{', '.join(schema.names)[:200]}{besides}; write its rows as instance JSONL or CSV"
        )
    for name in boxes:
        if name != found:
            told[f"the boxes of {name} are not read, those of {found} are"] = 0
    holder, _, box = found.rpartition(".")
    if holder:
        types = {inner.name: inner.type for inner in holders[holder]}
        features, is_row, depth = features.get(holder), False, int(pa.types.is_struct(schema.field(holder).type))
    else:
        types = {field.name: field.type for field in schema}
        is_row = not _is_list(types[box].value_type) if _is_list(types[box]) else True
        depth = int(not is_row)
    own = {name: type for name, type in types.items() if name != box and _depth(type) == depth}
    names = {name: _class_names(features, name) for name in own}
    kinds = {name: "name" if names[name] or _is_text(type) else "number" for name, type in own.items()}
    label = label_of(kinds, fields, where)
    if label and kinds[label] == "number":
        told[
            f"classes are the numbers of {label}, whose names the file does not have (DuckDB, pandas and others drop "
            "the ClassLabel of the schema): write the names as text, or name the file that datasets wrote"
        ] = 0
    return _Columns(image, holder, box, label, names.get(label or "", []), is_row)


def _item(type: Any) -> Any:
    return type.value_type if _is_list(type) else type


def _is_list(type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type))


def _depth(type: Any) -> int:
    """Return how many lists lie around the values of a type."""
    return 1 + _depth(type.value_type) if _is_list(type) else 0


def _is_text(type: Any) -> bool:
    import pyarrow as pa

    inner = _item(type)
    inner = inner.value_type if pa.types.is_dictionary(inner) else inner
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner))


def _features(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Return the features that `datasets` writes into the schema."""
    try:
        found = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _class_names(features: Any, name: str) -> list[str]:
    """Return the names of a `ClassLabel` in the features of a structure, or in a list of such."""
    own = _below_lists(features)
    label = _below_lists(own.get(name)) if isinstance(own, Mapping) else None
    names = label.get("names") if isinstance(label, Mapping) and label.get("_type") == "ClassLabel" else None
    return list(names) if isinstance(names, list) else []


def _below_lists(feature: Any) -> Any:
    while isinstance(feature, list) or (isinstance(feature, Mapping) and "feature" in feature):
        feature = (feature[0] if feature else None) if isinstance(feature, list) else feature["feature"]
    return feature


def _readable(type: Any) -> Any:
    """Return a type with times in microseconds, which Python has without pandas."""
    import pyarrow as pa

    if pa.types.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    if pa.types.is_time64(type):
        return pa.time64("us")
    if pa.types.is_duration(type):
        return pa.duration("us")
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_readable(field.type)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(_readable(type.value_type)))
    if pa.types.is_large_list(type):
        return pa.large_list(type.value_field.with_type(_readable(type.value_type)))
    return type
