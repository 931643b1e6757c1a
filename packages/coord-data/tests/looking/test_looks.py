"""Looks at parts of a set, merged in any order and grouping, are the looks at the whole, and so are the findings."""

import io
import json
import random
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw

from coord_codec import InputError
from coord_data import ReadingRules, gather_evidence
from coord_data.inspection.examine import examination_of
from coord_data.looking import looks as looks_module
from coord_data.looking.look import look_at_images
from coord_data.looking.looks import Looks, merge


def scene(seed):
    """Return an image of coloured rectangles, and their boxes in pixels."""
    rng = np.random.default_rng(seed)
    image, boxes = Image.new("RGB", (160, 120), tuple(rng.integers(200, 255, 3).tolist())), []
    for k in range(3):
        x, y, side = int(10 + 50 * k), int(rng.integers(5, 70)), int(rng.integers(20, 40))
        ImageDraw.Draw(image).rectangle((x, y, x + side, y + side), fill=tuple(rng.integers(0, 150, 3).tolist()))
        boxes.append((x, y, side + 1, side + 1))
    return image, boxes


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A training set with equal files, copies, damaged, missing and turned images, and a held-out set."""
    folder, rows = tmp_path_factory.mktemp("sets"), {"train": [], "held": []}

    def write(name, content):
        (folder / name).write_bytes(content)

    def encoded(image, format, **options):
        buffer = io.BytesIO()
        image.save(buffer, format, **options)
        return buffer.getvalue()

    turned = Image.Exif()
    turned[0x0112] = 6
    for n in range(24):
        image, boxes = scene(n)
        write(f"{n}.png", encoded(image, "PNG"))
        rows["train"].append((f"{n}.png", boxes))
        if n % 4 == 0:
            write(f"copy{n}.jpg", encoded(image.resize((240, 180)), "JPEG", quality=90))
            larger = [tuple(1.5 * side for side in box) for box in boxes]
            rows["train"].append((f"copy{n}.jpg", larger))
        if n % 5 == 0:
            write(f"same{n}.png", encoded(image, "PNG"))
            rows["train"].append((f"same{n}.png", boxes[: 1 + n % 2]))
        if n % 6 == 0:
            write(f"held{n}.jpg", encoded(image, "JPEG", quality=60))
            rows["held"].append((f"held{n}.jpg", boxes))
    for n in range(24, 30):
        image, boxes = scene(n)
        write(f"turned{n}.jpg", encoded(image, "JPEG", exif=turned))
        rows["train"].append((f"turned{n}.jpg", boxes))
    write("cut.jpg", encoded(scene(40)[0], "JPEG")[:900])
    rows["train"] += [("cut.jpg", scene(40)[1]), ("missing.png", scene(41)[1]), ("0.png", scene(0)[1])]
    evidence = {}
    for name, records in rows.items():
        document = {
            "images": [{"id": i, "file_name": file} for i, (file, _) in enumerate(records)],
            "categories": [{"id": 1, "name": "box"}],
            "annotations": [
                {"id": 10 * i + k, "image_id": i, "category_id": 1, "bbox": box}
                for i, (_, boxes) in enumerate(records)
                for k, box in enumerate(boxes)
            ],
        }
        path = folder / f"{name}.json"
        path.write_text(json.dumps(document))
        evidence[name] = gather_evidence(path, ReadingRules(images=folder))
    return evidence


def parts_of(evidence, rng):
    """Return looks at random parts of the images, some of which two parts contain."""
    names, kept = evidence.raw.files, set(evidence.raw.compared_images())
    part_of = [rng.randrange(5) for _ in names]
    parts = []
    for part in range(5):
        rows = [i for i in range(len(names)) if part_of[i] == part or rng.random() < 0.1]
        chosen = [at for at, row in enumerate(rows) if row in kept]
        looks = look_at_images([names[row] for row in rows], evidence.root, evidence.base, chosen)
        parts.append(looks.numbered(np.array(rows, np.int64)))
    return parts


def merged_at_random(parts, rng):
    """Return the parts merged two at a time, in a random order."""
    parts = list(parts)
    while len(parts) > 1:
        rng.shuffle(parts)
        parts = [merge([parts[0], parts[1]]), *parts[2:]]
    return parts[0]


@pytest.mark.slow
def test_findings_of_merged_parts_are_those_of_the_whole(sets, tmp_path):
    whole = examination_of(sets["train"], heldout=sets["held"]).findings
    codes = {finding.code for finding in whole}
    assert codes >= {"duplicate_images", "conflicting_boxes", "leakage", "unreadable_image", "exif"}
    for seed in range(6):
        rng = random.Random(seed)
        merged = {}
        for name, evidence in sets.items():
            parts = parts_of(evidence, rng)
            for n, part in enumerate(parts):
                part.write(tmp_path / f"{n}.parquet", "settings")
            parts = [Looks.read(tmp_path / f"{n}.parquet", "settings") for n in range(len(parts))]
            merged[name] = replace(evidence, files=merged_at_random(parts, rng))
            assert merged[name].files.table.drop_columns("slot").equals(merge(parts).table.drop_columns("slot"))
        assert examination_of(merged["train"], heldout=merged["held"]).findings == whole, seed


def test_many_grey_values_lie_in_a_file(sets, monkeypatch):
    parts = parts_of(sets["train"], random.Random(0))
    in_memory = merge(parts)
    monkeypatch.setattr(looks_module, "_HELD_BYTES", 5 * 64 * 64)
    in_file = merge(parts)
    assert isinstance(in_file.grey_K, np.memmap) and not isinstance(in_memory.grey_K, np.memmap)
    assert np.array_equal(in_file.grey_K, in_memory.grey_K) and in_file.table.equals(in_memory.table)


def test_part_of_other_settings_or_version_is_refused(sets, tmp_path):
    part = parts_of(sets["held"], random.Random(0))[0]
    part.write(tmp_path / "a.parquet", "these")
    with pytest.raises(InputError, match="other settings"):
        Looks.read(tmp_path / "a.parquet", "those")
    table = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(
        table.replace_schema_metadata({**table.schema.metadata, b"coord_data.looks": b"0"}), tmp_path / "b.parquet"
    )
    with pytest.raises(InputError, match="version 0"):
        Looks.read(tmp_path / "b.parquet", "these")
