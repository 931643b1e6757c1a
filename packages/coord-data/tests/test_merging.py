"""Parts that were prepared one by one become the set that is prepared at once, whatever the partition."""

import json
import random

import pytest
from one_image import picture

from coord_codec import InputError
from coord_data import ReadingRules, merge_prepared
from coord_data.preparing.preparation import prepare

CHOICES = {
    "all": {},
    "split": {"split": 0.4},
    "near": {"drop_duplicates": "near"},
    "exact, joined, split": {"drop_duplicates": "exact", "join_boxes": True, "split": 0.4},
    "drawn": {"count": 7, "seed": 3},
}


def written(folder):
    """Return what a folder holds, without what names its sources and their lines: records, problems and counts."""
    found = {path.name: sorted(path.read_text().splitlines()) for path in folder.glob("*.jsonl")}
    problems = [json.loads(line) for line in found["problems.jsonl"]]
    found["problems.jsonl"] = sorted((row["field"], row["message"]) for row in problems)
    for path in folder.glob("*.summary.json"):
        summary = json.loads(path.read_text())
        del summary["sources"], summary["told"]
        found[path.name] = summary
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Instance records in the order of their paths: equal files, a resized copy, phrases, crowds and faulty boxes."""
    folder = tmp_path_factory.mktemp("whole")
    rows = []
    for n in range(18):
        source = {7: 2, 15: 2, 11: 4}.get(n, n)  # 7 and 15 are 2 again, 11 is 4 in another size
        name = f"{n:02}.png"
        image = picture(source, (96, 72) if n == 11 else (64, 48))
        if n in (0, 1, 9, 13):  # what decoding changes is counted
            image.putalpha(254 - n)
        image.save(folder / name)
        objects = [{"desc": ("cat", "dog")[n % 2], "bbox": [0.1, 0.1, 0.5 + n / 100, 0.9]}]
        if n % 5 == 0:
            objects.append({"desc": "cat", "bbox": [0.2, 0.2, 0.6, 0.6], "iscrowd": True})
        if n in (3, 9):
            objects.append({"desc": "cat", "bbox": [0.5, 0.5, 0.5, 0.7]})
        rows.append({"image": name, "image_id": n, "objects": objects})
    rows.insert(6, {**rows[5], "image_id": 50, "query": "the left one"})
    return folder, rows


def facts_of(folder):
    """Return one of the summaries in a folder, which agree in what they say of the sources."""
    return json.loads(next(folder.glob("*.summary.json")).read_text())


def prepared(folder, rows, out, **options):
    source = folder / f"{out.name}.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare([source], out, ReadingRules(on_bad_box="drop_box"), **options)
    return out


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("seed", range(3))
def test_merged_parts_of_any_partition_are_the_whole(whole, tmp_path, choice, seed):
    folder, rows = whole
    draw, options = random.Random(seed), CHOICES[choice]
    shuffled = draw.sample(rows, len(rows))
    ends = sorted(draw.sample(range(1, len(rows)), 3))
    pieces = [shuffled[i:k] for i, k in zip([0, *ends], [*ends, len(rows)], strict=True)]
    parts = [prepared(folder, piece, tmp_path / f"part-{n}", as_part=True) for n, piece in enumerate(pieces)]
    draw.shuffle(parts)
    merge_prepared(parts[:2], tmp_path / "half", as_part=True)
    merge_prepared([*parts[2:], tmp_path / "half"], tmp_path / "merged", **options)
    at_once = prepared(folder, rows, tmp_path / "once", **options)
    assert written(tmp_path / "merged") == written(at_once)
    assert 4 in facts_of(at_once)["notes"].values()
    merge_prepared(parts, tmp_path / "flat", **options)
    for path in (tmp_path / "merged").iterdir():
        assert path.read_bytes() == (tmp_path / "flat" / path.name).read_bytes()


def test_ids_that_parts_share_are_left_out_of_all(whole, tmp_path):
    folder, rows = whole
    parts = [
        prepared(folder, rows[:4], tmp_path / "a", as_part=True),
        prepared(folder, [{**row, "image_id": 0} for row in rows[8:9]], tmp_path / "b", as_part=True),
        prepared(folder, rows[12:14], tmp_path / "c", as_part=True),
    ]
    merge_prepared(parts[:2], tmp_path / "ab", as_part=True)
    merge_prepared([str(tmp_path / "ab"), parts[2]], str(tmp_path / "merged"))
    lines = (tmp_path / "merged" / "instances.jsonl").read_text().splitlines()
    assert len(lines) == 7
    assert lines == sorted(lines)
    assert not any("image_id" in json.loads(line) for line in lines)


def test_all_that_parts_tell_is_told_of_the_whole(whole, tmp_path):
    folder, rows = whole
    again = [{**row, "image_id": 60 + n} for n, row in enumerate(rows)]  # a second record of an image
    pieces = {"a": [again[0], *rows[:2]], "b": rows[2:4], "c": [again[4], *rows[4:6]]}
    parts = [prepared(folder, piece, tmp_path / name, as_part=True) for name, piece in pieces.items()]
    merge_prepared(parts, tmp_path / "merged")
    told = [{*facts_of(part)["told"]} for part in parts]
    assert told[0] - told[2] and told[2] - told[0] and set.union(*told) == {*facts_of(tmp_path / "merged")["told"]}


def test_what_cannot_be_merged_is_refused(whole, tmp_path):
    folder, rows = whole
    part = prepared(folder, rows[:4], tmp_path / "part", as_part=True)
    plain = prepared(folder, rows[4:8], tmp_path / "plain")
    strict = tmp_path / "strict"
    prepare([folder / "part.jsonl"], strict, ReadingRules(on_bad_box="drop_image"), as_part=True)
    for parts, told in (([part, plain], "as-part"), ([part, part], "twice"), ([part, strict], "on_bad_box")):
        with pytest.raises(InputError, match=told):
            merge_prepared(parts, tmp_path / "out")
    with pytest.raises(InputError, match="--split: a part does not know"):
        prepared(folder, rows, tmp_path / "split", as_part=True, split=0.1)
    for taken in ("plain", "x.jsonl"):
        (tmp_path / "x.problems.jsonl").touch()
        with pytest.raises(InputError, match="exists already"):
            merge_prepared([part], tmp_path / taken)
    records = part / "instances.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(InputError, match="changed after it was written"):
        merge_prepared([part], tmp_path / "out")
    assert not (tmp_path / "out").exists()
