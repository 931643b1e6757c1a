"""Annotations and images: what is left out of training is left out of scoring, counted and listed."""

import json

import pytest
from coco_document import coco_document
from PIL import Image
from tiny_run import tiny_config

from coord_codec import InputError
from coord_codec.counts import counted
from coord_data.reading.image_set import load_annotated
from coord_data.reading.rules import ReadingRules
from coord_eval import load_ground_truth
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.load import load_data, report_sets, rules_of

IMAGE = {"id": 7, "file_name": "a.png", "width": 200, "height": 100}


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (200, 100), (10, 20, 30)).save(tmp_path / "a.png")

    def write(document):
        path = tmp_path / "annotations.json"
        path.write_text(json.dumps(document))
        return path

    return write


GOOD = [{"image_id": n, "bbox": [20, 10, 100, 50]} for n in (1, 2, 3)]
OF_4 = [{"image_id": 4, "bbox": [20, 10, 50, 50]}, {"image_id": 4, "bbox": [20, 10, 50, 60]}]
SIZED = {"id": 4, "width": 200, "height": 100}
IMAGES = [SIZED | {"id": n, "file_name": f"{n}.png"} for n in (1, 2, 3)]
ANOTHER_SIZE = "say 100 x 100 pixels, the file has 200 x 100"
# What is added to a good file, and the problem that is listed; every one of them would be an object or an image more.
FOURTH = SIZED | {"file_name": "1.png"}
BAD = {
    "unknown image": ([{"image_id": 99, "bbox": [0, 0, 9, 9]}], [], "99 is not the id of an image"),
    "no area": ([{"image_id": 1, "bbox": [0, 0, 0, 9]}], [], "no area"),
    "outside": ([{"image_id": 4, "bbox": [150, 0, 60, 9]}], [FOURTH], "lies outside its image"),
    "control token": ([{"image_id": 4, "bbox": [0, 0, 9, 9], "category_id": 2}], [FOURTH], "control token <|box_end|>"),
    "repeated image id": (OF_4, [SIZED | {"file_name": "1.png"}, SIZED | {"file_name": "2.png"}], "occurs 2 times"),
    "no file name": (OF_4, [SIZED], "expected a path, found none"),
    "missing image": (OF_4, [SIZED | {"file_name": "gone.png"}], "does not exist"),
    "text as image": (OF_4, [SIZED | {"file_name": "text.png"}], "cannot be decoded"),
    "thin image": (
        OF_4,
        [SIZED | {"file_name": "strip.png"}],
        "402 x 2 pixels; the ratio of its sides exceeds max_side_ratio=200",
    ),
    "another size": (OF_4, [SIZED | {"file_name": "1.png", "width": 100}], ANOTHER_SIZE),
}
# The same of instance JSONL: objects of the line that is added, and its other fields.
BOX = {"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}
BAD_LINES = {
    "swapped corners": ({"objects": [BOX | {"bbox": [0.5, 0, 0.1, 1]}]}, "no area or swapped corners"),
    "outside": ({"objects": [BOX | {"bbox": [0, 0, 2, 1]}]}, "objects[0].bbox"),
    "control token": ({"objects": [BOX | {"desc": "a <|box_end|>"}]}, "control token <|box_end|>"),
    "repeated image id": ({"objects": [BOX], "image_id": 1}, "found 1, which"),
    "missing image": ({"objects": [BOX], "image": "gone.png"}, "does not exist"),
    "another size": ({"objects": [BOX], "width": 100}, ANOTHER_SIZE),
}


@pytest.fixture
def image_folder(tmp_path):
    place = tmp_path / "images"
    place.mkdir()
    for n in (1, 2, 3):
        Image.new("RGB", (200, 100), (10, 20, 30 * n)).save(place / f"{n}.png")
    Image.new("RGB", (402, 2)).save(place / "strip.png")
    (place / "text.png").write_text("no image")
    return place


def write_coco(path, kinds, good=GOOD):
    annotations, others = good, []
    for number, kind in enumerate(kinds):
        more, images_of_kind, _ = BAD[kind]
        image_id = 4 + number
        annotations = [*annotations, *(a | {"image_id": image_id} if a["image_id"] == 4 else a for a in more)]
        others += [image | {"id": image_id} for image in images_of_kind]
    path.write_text(json.dumps(coco_document(annotations, [*IMAGES, *others], ("cat", "a <|box_end|>"))))
    return path


def check_left_out(path, root, *told):
    """Training and scoring have the three good images, and every problem is listed."""
    found = load_annotated(path, ReadingRules(images=root))
    assert [instance.image for instance in found.instances] == ["1.png", "2.png", "3.png"]
    assert [len(instance.targets) for instance in found.instances] == [1, 1, 1]
    truth = load_ground_truth(found.ground_truth())
    assert len(truth) == 3 and len(truth.category_N) == 3 and not truth.crowd_N.any()
    assert len(load_ground_truth(found.ground_truth(limit=2)).category_N) == 2
    problems = "\n".join(map(str, found.problems))
    assert [words for words in told if words not in problems] == []
    report_sets(path.parent, [found])
    listed = [json.loads(line) for line in (path.parent / "problems.jsonl").read_text().splitlines()]
    assert [(line["where"], line["message"]) for line in listed] == [(p.where, p.message) for p in found.problems]
    with pytest.raises(InputError, match=r"strict is on"):
        load_annotated(path, ReadingRules(images=root, strict=True))
    return found


def test_bad_coco_records_are_left_out_of_training_and_scoring_and_listed(image_folder, tmp_path, capsys):
    path = write_coco(tmp_path / "a.json", BAD)
    found = check_left_out(path, image_folder, *(told for *_, told in BAD.values()))
    assert counted(len(found.problems), "problem") in capsys.readouterr().out


def test_bad_instance_lines_are_left_out_of_training_and_scoring_and_listed(image_folder, tmp_path):
    line = {"image": "1.png", "width": 200, "height": 100}
    good = [line | {"image": f"{n}.png", "image_id": n, "objects": [BOX]} for n in (1, 2, 3)]
    bad = [line | {"image_id": n} | fields for n, (fields, _) in enumerate(BAD_LINES.values(), start=4)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in [*good, *bad]) + "[1\n")
    check_left_out(path, image_folder, "not JSON", *(told for _, told in BAD_LINES.values()))


def test_crowd_region_is_no_target_but_stands_in_the_ground_truth(folder):
    crowd = {"bbox": [0, 0, 50, 50], "iscrowd": 1}
    path = folder(coco_document([{"bbox": [20, 10, 100, 50]}, crowd], [IMAGE]))
    found = load_annotated(path, ReadingRules(images=path.parent, strict=True))
    assert len(found.instances[0].targets) == 1
    assert sorted(load_ground_truth(found.ground_truth()).crowd_N.tolist()) == [False, True]


def test_size_that_the_annotations_do_not_state_is_the_images(folder):
    document = coco_document([{"bbox": [20, 10, 100, 50]}], [{"id": 7, "file_name": "a.png"}])
    path = folder(document)
    found = load_annotated(path, ReadingRules(images=path.parent, strict=True))
    assert found.instances[0].objects[0].bbox == pytest.approx((0.1, 0.1, 0.6, 0.6), abs=1e-12)


def test_boxes_that_the_grid_cannot_show_are_left_out_alone(folder, tmp_path):
    path = folder(coco_document([{"bbox": [20, 10, 0.05, 50]}, {"bbox": [20, 10, 10, 50]}], [IMAGE]))
    found = load_annotated(path, ReadingRules(images=tmp_path))
    assert [o.bbox for o in found.instances[0].objects] == [pytest.approx((0.1, 0.1, 0.15, 0.6))]
    assert len(load_ground_truth(found.ground_truth()).category_N) == 1
    assert [p.message.partition(": ")[2][:32] for p in found.problems] == ["the box is thinner than a bin, w"]


def test_no_usable_image_is_an_error(folder, tmp_path):
    (tmp_path / "a.png").unlink()
    with pytest.raises(InputError, match="no usable image"):
        load_annotated(folder(coco_document([], [IMAGE])), ReadingRules(images=tmp_path))
    with pytest.raises(InputError, match="images: expected a folder"):
        load_annotated(folder(coco_document([], [IMAGE])), ReadingRules(images=tmp_path / "nowhere"))


def test_paths_in_instance_jsonl_are_relative_to_the_file(folder, tmp_path):
    record = {"image": "a.png", "width": 200, "height": 100, "objects": [BOX]}
    (tmp_path / "x.jsonl").write_text(json.dumps(record) + "\n")
    found = load_annotated(tmp_path / "x.jsonl")
    assert len(found) == 1 and found.image(0).size == (200, 100)


def test_digest_follows_content_and_the_same_data_cannot_be_held_out(folder, tmp_path):
    path = folder(coco_document([{"bbox": [20, 10, 100, 50]}], [IMAGE]))
    first = load_annotated(path, ReadingRules(images=tmp_path)).digest
    places = {"annotations": path, "images": tmp_path, "heldout_annotations": path, "heldout_images": tmp_path}
    custom = {"coord_soft_ce_w1": {"enabled": True}}
    with pytest.raises(InputError, match="same data"):
        load_data(RunConfig.model_validate({"data": places, "custom": custom}), tmp_path)
    Image.new("RGB", (200, 100), (10, 20, 31)).save(tmp_path / "a.png")
    assert load_annotated(path, ReadingRules(images=tmp_path)).digest != first


def test_held_out_set_is_whole_and_a_source_of_its_name_is_trained_on(folder, tmp_path):
    """`data.limit` and `data.augment` are of the images that are trained on."""
    names = ["b.png", "c.png"]
    for name in names:
        Image.new("RGB", (200, 100), (names.index(name), 2, 3)).save(tmp_path / name)
    path = folder(coco_document([{"bbox": [20, 10, 100, 50]}], [IMAGE]))
    lines = [{"image": name, "objects": [{"desc": "left cat", "bbox": [0.1, 0.1, 0.5, 0.5]}]} for name in names]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    held = {"heldout_annotations": tmp_path / "b.jsonl", "heldout_images": tmp_path}
    train = {"annotations": path, "images": tmp_path}
    custom = {"coord_soft_ce_w1": {"enabled": True}}
    data = {**train, **held, "limit": 1, "augment": {"flip": 0.5}}
    found = load_data(RunConfig.model_validate({"data": data, "custom": custom}), tmp_path)
    assert (len(found.train), len(found.heldout)) == (1, 2)
    assert not any("mirrored" in note for note in found.heldout.notes)
    sources = {"data": {"sources": [{**train, "name": "heldout"}]}, "evaluation": {"images": "none"}, "custom": custom}
    found = load_data(RunConfig.model_validate(sources), tmp_path)
    assert (len(found.train), found.heldout) == (1, None)


@pytest.mark.slow
def test_run_with_every_bad_record_reaches_its_report(image_folder, tmp_path):
    """Such a run used to train, to generate, and then to end without a score."""
    from coord_trainer.run import train_and_score

    data = {
        "annotations": write_coco(tmp_path / "a.json", BAD),
        "images": image_folder,
        "heldout_annotations": write_coco(tmp_path / "b.json", BAD, [a | {"bbox": [50, 10, 100, 50]} for a in GOOD]),
        "heldout_images": image_folder,
    }
    training = {"max_steps": 2, "save_steps": 2, "eval_strategy": "no", "report_to": []}
    config = tiny_config(data=data, training=training, evaluation={"max_new_tokens": 4})
    result = train_and_score(config, tmp_path / "run")
    assert (tmp_path / "run" / "report.html").is_file()
    assert result.evaluation.to_dict()["counts"]["images"] == 3
    assert result.evaluation.to_dict()["counts"]["objects"] == 3
    assert len((tmp_path / "run" / "predictions.jsonl").read_text().splitlines()) == 3
    listed = [json.loads(line) for line in (tmp_path / "run" / "problems.jsonl").read_text().splitlines()]
    for name in ("train", "heldout"):
        told = "\n".join(line["message"] for line in listed if line["set"] == name)
        assert [kind for kind in BAD if BAD[kind][2] not in told] == []
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["data"]["train"]["problems"] == len([line for line in listed if line["set"] == "train"])


@pytest.mark.parametrize(
    ("kind", "stated", "expected"),
    [
        ("qwen3_vl", {}, 200),
        ("qwen3_vl", {"max_side_ratio": 3.0}, 3),
        ("internvl", {}, None),  # its processor takes any
        ("internvl", {"max_side_ratio": 3.0}, 3),
        ("internvl", {"max_side_ratio": 200.0}, 200),  # stated, though it is the default
        ("qwen3_vl", {"max_side_ratio": None}, None),
        ("of another maker", {}, 200),
        (None, {}, 200),
    ],
)
def test_ratio_of_sides_is_the_stated_one_or_else_that_of_the_family(tmp_path, kind, stated, expected):
    if kind is not None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    for path in (str(tmp_path), None):
        config = tiny_config(model={"path": path}, data=stated)
        default = stated.get("max_side_ratio", 200)
        assert rules_of(config).max_side_ratio == (default if path is None else expected)
