"""The part of a large file that is looked at: even, of whole records, and the same however its lists are ordered."""

import json
import random
from itertools import pairwise

import pytest

from coord_data.large import part
from coord_data.large.part import CocoPart, LinesPart


@pytest.mark.parametrize("count", [0, 1, 255, 257, 5_000])
def test_lines_are_evenly_spaced_over_the_whole_file(count):
    found = LinesPart()
    lines = [(number, f"line {number}\r\n".encode()) for number in range(1, count + 1)]
    for start in range(0, count, 100):
        found.see(lines[start : start + 100])
    kept = [int(line.split()[1]) for line in found.text().splitlines()]
    steps = {b - a for a, b in pairwise(kept)}
    assert len(steps) <= 1 and min(count, part.PART) <= len(kept) <= 2 * part.PART
    if kept:
        (step,) = steps or {1}
        assert kept[0] == step and count - kept[-1] < step


@pytest.mark.parametrize(("shuffled", "text"), [(False, False), (True, False), (True, True)])
def test_images_of_a_coco_part_have_all_their_annotations(monkeypatch, shuffled, text):
    monkeypatch.setattr(part, "_ANNOTATIONS", 500)
    rows = [("images", {"id": i, "file_name": f"{i}.jpg"}) for i in range(3_000)]
    rows += [
        ("annotations", {"image_id": str(i) if text else i, "id": 10 * i + n})
        for i in range(3_000)
        for n in range(i % 5)
    ]
    rows += [("categories", {"id": 1, "name": "cat"}), ("info", {"year": 2}), ("images", None), ("annotations", 7)]
    if shuffled:
        random.Random(0).shuffle(rows)
    found = CocoPart()
    for key, row in rows:
        found.see(key, row)
    document = json.loads(found.text())
    ids = [image["id"] for image in document["images"] if image]
    assert 60 <= len(ids) <= part.PART and len(set(ids)) == len(ids)
    assert max(ids) > 2_500 and min(ids) < 500
    annotated = sorted(row["id"] for row in document["annotations"])
    assert annotated == sorted(10 * i + n for i in ids for n in range(i % 5))
    assert document["categories"] == [{"id": 1, "name": "cat"}]
