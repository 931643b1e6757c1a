"""Evaluations of parts, merged, against one of all predictions."""

import dataclasses
import json
import pickle
import random

import pytest
from coco_builder import coco
from random_sets import random_set

from coord_eval import AnswerSettings, InputError, ReportSettings, merge, score
from coord_eval.cli.main import main


def without_order(value):
    """Return the contents of `evaluation.json` without the notes, which name parts."""
    return {key: part for key, part in value.to_dict().items() if key != "notes"}


def divided(draw, items, count):
    """Return a random partition of images and their boxes; parts may be empty."""
    parts = [[] for _ in range(count)]
    of_image = {}
    for item in items:
        parts[of_image.setdefault(item["image_id"], draw.randrange(count))].append(item)
    return parts


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("seed", range(3))
def test_parts_give_the_same_bits_as_the_whole(seed, count):
    draw = random.Random(seed)
    truth, results = random_set(draw, images=12)
    results.append({**results[0], "category_id": 999})
    whole = score(truth, sorted(results, key=lambda box: box["image_id"]), report=ReportSettings(bootstrap=3))
    parts = [score(truth, part) for part in divided(draw, results, count)]
    merged = merge(pickle.loads(pickle.dumps(parts)), bootstrap=3)
    assert without_order(merged) == without_order(whole)


@pytest.mark.slow
def test_boxes_of_parts_stand_in_the_order_of_images_as_those_of_the_whole():
    """Files of boxes are written in this order, so that they do not depend on how the images were divided."""
    truth, results = random_set(random.Random(11))
    results = [{**box, "score": 0.5} for box in sorted(results, key=lambda box: box["image_id"])]
    images = list(dict.fromkeys(box["image_id"] for box in results))
    divided_results = [[box for box in results if (images.index(box["image_id"]) + n) % 2] for n in (0, 1)]
    whole, merged = score(truth, results), merge([score(truth, part) for part in divided_results])
    for name in ("image_D", "category_D", "boxes_D4", "rank_D"):
        assert getattr(merged.detections, name).tolist() == getattr(whole.detections, name).tolist()
    assert without_order(merged) == without_order(whole)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_text_answers_in_parts(count):
    draw = random.Random(5)
    truth, results = random_set(draw)
    names = {category["id"]: category["name"] for category in truth["categories"]}
    texts = []
    for image in sorted(image["id"] for image in truth["images"])[1:]:
        items = [
            {"bbox_2d": [x, y, x + w + 1, y + h + 1], "label": names[box["category_id"]], "confidence": box["score"]}
            for box in results
            if box["image_id"] == image
            for x, y, w, h in [box["bbox"]]
        ]
        texts.append({"image_id": image, "text": json.dumps(items)})
    settings = {"score_source": "stated", "answers": AnswerSettings(scale="pixels", fuse="nms:0.6")}
    parts = [score(truth, part, **settings) for part in divided(draw, texts, count)]
    whole, merged = score(truth, texts, **settings), merge(parts)
    assert without_order(merged) == without_order(whole)
    assert any(f"1 of {len(truth['images'])} images are without an answer" in note for note in merged.notes)


OBJECT = '{"bbox_2d": [10, 10, 500, 500], "label": "%s"}'
ANSWERS = [
    {"image": "1.jpg", "text": "[" + OBJECT % "cat" + ', {"bbox_2d": [1, 2], "label": "cat"}]'},
    {"image_id": 2, "text": "<obj_start>cat<|coord_9|><|coord_9|><|coord_70|><|coord_70|><obj_end><obj_start>cat<|co"},
    {"image_id": 3, "text": "[" + OBJECT % "bird" + "," + OBJECT % "Dog" + "]"},
    {"image": "4.jpg", "text": "<obj_start>cow<|coord_700|><|coord_9|><|coord_9|><|coord_700|><obj_end>"},
    {"image_id": 5, "text": "[]", "finish_reason": "error"},
    {"image_id": 6, "text": "I see nothing of the kind.", "finish_reason": "length"},
    {"image_id": 98, "text": "[" + OBJECT % "cat" + "]"},
    {"image": "no.jpg", "text": "[" + OBJECT % "cat" + "]"},
]
"""Answers of which each adds to other counts: drops, repairs, formats, labels, failures, images by name and unknown."""


def test_every_count_of_parts_is_their_sum_whatever_each_part_has_of_it():
    truth = coco((1, 1, [5, 5, 40, 40]), (3, 2, [5, 5, 40, 40]), names=("cat", "dog"), images=range(1, 8))
    settings = {"score_source": "constant", "answers": AnswerSettings(scale=1000, fuse="nms:0.6")}
    settings["report"] = ReportSettings(diagnose=False)
    whole = score(truth, ANSWERS, **settings)
    assert len(whole.format["dropped"]) > 1 and len(whole.unknown_labels) == 2 and whole.join.unknown == 2
    for parts in ([ANSWERS[k::2] for k in (0, 1)], [ANSWERS[3:], ANSWERS[:3]], [[answer] for answer in ANSWERS[:6]]):
        scored = [score(truth, part, **settings) for part in parts]
        wanted = whole if sum(map(len, parts)) == len(ANSWERS) else score(truth, ANSWERS[:6], **settings)
        assert without_order(merge(scored)) == without_order(wanted)
        told = " ".join(merge(scored).notes)
        assert all(note in told for part in scored for note in part.notes if "without an answer" not in note)


def test_parts_that_do_not_fit_are_refused():
    truth = coco(images=(1, 2))
    box = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5}
    part = score(truth, [box])
    with pytest.raises(InputError, match="parts: expected one"):
        merge([])
    with pytest.raises(InputError, match=r"parts\[1\]: image 1 is in another part"):
        merge([part, part])
    with pytest.raises(InputError, match=r"parts\[1\]: its ground truth"):
        merge([part, score(coco(images=(1, 3)), [])])
    with pytest.raises(InputError, match=r"parts\[1\]: backend"):
        merge([part, score(truth, [], backend="pycocotools")])


@pytest.mark.slow
def test_command_line_merges_a_folder(tmp_path):
    draw = random.Random(3)
    truth, results = random_set(draw)
    (tmp_path / "parts").mkdir()
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    for n, part in enumerate(divided(draw, results, 3)):
        (tmp_path / "parts" / f"{n}.json").write_text(json.dumps(part))
    words = ["--ground-truth", tmp_path / "truth.json", "--predictions", tmp_path / "parts", "--out", tmp_path / "out"]
    assert main(["score", *map(str, words), "--no-report", "--json"]) == 0
    written = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert written["coco"] == score(truth, results).coco


def of_part(images, **more):
    truth = coco(*((i, 1, [10, 10, 20, 20]) for i in range(1, 5)), images=range(1, 5))
    rows = [{"image_id": i, "text": f'[{{"bbox": [11, 10, 30, 30], "label": "{label}"}}]'} for i, label in images]
    answers = AnswerSettings(scale="pixels", **more.pop("answers", {}))
    return score(
        truth, rows, answers=answers, report=ReportSettings(diagnose=False, **more), score_source="emission_rank"
    )


def test_what_parts_must_have_in_common_is_told_with_its_place(tmp_path):
    first = of_part([(1, "cat")])
    for name, value in {"calibrated": True, "backend": "pycocotools", "bins": 999, "score_source": "stated"}.items():
        other = dataclasses.replace(of_part([(2, "cat")]), **{name: value})
        with pytest.raises(InputError, match=rf"parts\[1\]: {name}: expected .* as in other parts, found .*{value}"):
            merge([first, other])
    for column in ("area_N", "crowd_N", "image_N", "category_N", "boxes_N4"):
        truth = dataclasses.replace(first.truth, **{column: getattr(first.truth, column) + 1 * (column != "crowd_N")})
        if column == "crowd_N":
            truth = dataclasses.replace(first.truth, crowd_N=~first.truth.crowd_N)
        with pytest.raises(InputError, match=r"parts\[1\]: its ground truth is another one"):
            merge([first, dataclasses.replace(of_part([(2, "cat")]), truth=truth)])
    empty = dataclasses.replace(of_part([]), score_source="constant")  # without a box there is no source
    assert len(merge([empty, first]).detections) == 1
    with pytest.raises(InputError, match=r"parts\[1\]: image 1 is in another part too"):
        merge([of_part([(1, "cat")]), of_part([(1, "cat")])])
    nothing = [{"image_id": 2, "text": "[]"}]
    truth = coco((2, 1, [10, 10, 20, 20]), images=(1, 2))
    with pytest.raises(InputError, match=r"parts\[1\]: image 2 is in another part too"):  # also of an empty answer
        merge([score(truth, nothing, score_source="constant"), score(truth, nothing, score_source="constant")])


def test_counts_of_fused_boxes_strangers_and_names_are_sums_and_notes_name_their_part():
    fused = {"answers": {"fuse": "nms:0.5"}}
    parts = [
        of_part([(1, "cat"), (9, "cat")], **fused),
        of_part([("2.jpg", "cow"), ("3.jpg", "cow"), (8, "cat")], **fused),
    ]
    parts.append(of_part([(4, "cat")], **fused))
    merged = merge(parts)
    assert (merged.join.by_name, merged.join.unknown, merged.join.answered) == (2, 2, 4)
    assert merged.join.unknown_examples == ("9", "8") and merged.unknown_labels == {"cow": 2}
    numbers = {key: value for key, value in merged.fusion.items() if isinstance(value, int)}
    assert numbers == {key: sum(part.fusion[key] for part in parts) for key in numbers} and merged.fusion["rule"]
    assert not any("without an answer" in note for note in merged.notes)
    shared = [note for note in parts[0].notes if all(note in part.notes for part in parts)]
    assert [note for note in merged.notes if not note.startswith("part ")] == [
        note for note in shared if "without an answer" not in note
    ]
    some = merge(parts[:2])
    assert [note for note in some.notes if "without an answer" in note] == [
        "1 of 4 images are without an answer, which counts as an empty answer"
    ]
