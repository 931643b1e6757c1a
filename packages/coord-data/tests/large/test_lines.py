"""Lines of a large file are checked by a short cut that says the same as the codec's parser."""

import json

import numpy as np

from coord_codec.records import parse_objects
from coord_data.large.lines import plain_row
from coord_data.records import instance_of, row_of

_TYPED = [0, 1, 0.0, 1.0, 0.25, 0.5, 0.5005, True, None, "<|coord_100|>", "x", float("nan"), -0.1, 1e-7, [0.1], 12, ""]

_SHAPES = [None, "round", {"type": "polygon", "coordinates": [0.1, 0.1]}, {"type": "point", "coordinates": [0.5, 0.5]}]


def drawn_record(draw):
    """Return a record that is right but for what chance puts in, at any place."""
    objects = []
    for _ in range(draw.integers(0, 4)):
        (x1, x2), (y1, y2) = sorted(draw.uniform(0, 1, 2)), sorted(draw.uniform(0, 1, 2))
        found = {"desc": "cat", "bbox": [x1, y1, x2, y2]}
        given = {"iscrowd": [True, False, 0, 1], "area": [3, 2.5, None], "colour": ["red", [1]], "geometry": _SHAPES}
        for key, values in given.items():
            if draw.random() < (0.1 if key == "geometry" else 0.3):
                found[key] = values[draw.integers(len(values))]
        objects.append(found)
    record = {"image": "a.png", "width": 40, "height": 20, "image_id": int(draw.integers(9)), "objects": objects}
    if draw.random() < 0.2:
        record["source"] = {"web": 1}
    if draw.random() < 0.2:
        record.pop(["image", "width", "height", "image_id", "objects"][draw.integers(5)])
    if draw.random() < 0.6:
        value = _TYPED[draw.integers(len(_TYPED))]
        place = draw.choice(["image", "width", "image_id", "objects", "coord_space", "object", "side", "desc", "area"])
        if place in ("object", "side", "desc", "area") and objects:
            found = objects[draw.integers(len(objects))]
            if place == "object":
                objects[0] = value
            elif place == "side":
                found["bbox"][draw.integers(4)] = value
            else:
                found[place] = ["<|coord_1|>", " ", "\ud800", value][draw.integers(4)]
        else:
            record[place] = value
    return record


def test_plain_row_is_the_codecs_instance_or_none():
    draw, plain = np.random.default_rng(0), 0
    for _ in range(3000):
        record = drawn_record(draw)
        line = json.dumps(record).encode()
        row = plain_row(line)
        if row is not None:
            instance, faults = parse_objects(line, "a:1", "drop_box")
            assert not faults and repr(row) == repr(row_of(instance)), record  # repr, since no NaN equals another
            assert repr(instance_of(row)) == repr(instance)
            plain += 1
    assert 1000 < plain < 2500
