"""Images and annotations that lie elsewhere, or under another name: where they are is told."""

from pathlib import Path

import pytest
from one_image import COCO, VOC, coco
from PIL import Image

from coord_codec import InputError
from coord_data import ReadingRules, examine, gather_evidence, load_annotated


@pytest.mark.parametrize(
    ("image", "label"),
    [("images/a.PNG", "labels/a.TXT"), ("Images/a.png", "Labels/a.txt"), ("x/IMAGES/a.Png", "x/LABELS/a.TXT")],
)
def test_yolo_names_in_upper_case_are_found(place, prepared, image, label):
    for name, content in ((image, None), (label, "0 .5 .5 .2 .2"), ("classes.txt", "cat")):
        path = place / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 48)).save(path) if content is None else path.write_text(content)
    code, said = prepared("set", "--out", "out")
    assert code == 0, said
    assert "1 record, 1 box" in said


# The annotations, the image (None: there is none but images/a.png) as they name it, the words, and what must be told.
ELSEWHERE = {
    "beside the annotations": ("set/a.json", "set/photos/x/b.png", "b.png", ["set/a.json"], "{}/set/photos/x"),
    "CVAT": (
        "c/annotations/a.json",
        "c/images/default/b.png",
        "b.png",
        ["c/annotations/a.json"],
        "{}/c/images/default",
    ),
    "another folder named": ("set/a.json", "set/x/b.png", "b.png", ["set/a.json", "--images", "images"], "{}/set/x"),
    "not in another set": ("set/x/a.json", "b.png", "b.png", ["set/x/a.json"], "are relative to\n"),
}


@pytest.mark.parametrize("place_of", ELSEWHERE)
def test_folder_of_images_that_lie_elsewhere_is_named(place, prepared, place_of):
    annotations, image, stated, words, told = ELSEWHERE[place_of]
    for path in (place / annotations, place / image):
        path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 48)).save(place / image)
    (place / annotations).write_text(coco(images=[COCO["images"][0] | {"file_name": stated}]))
    code, said = prepared(*words, "--out", "out")
    assert code == 2 and "(--images) names the folder that its paths are relative to" in said
    assert told.format(f": {place}") in said
    images = Path(words[-1]) if "--images" in words else None
    evidence = gather_evidence(Path(words[0]), ReadingRules(images=images))
    (fix,) = (finding.fix for finding in examine(evidence) if finding.code == "unreadable_image")
    is_found = "{}" in told
    assert ("the first is found with --images" in fix) == is_found
    assert (told.format(f": {place}") in fix) == is_found


@pytest.mark.parametrize(
    ("there", "stated"), [("A.PNG", "a.png"), ("e\u0301.png", "\u00e9.png"), ("a.jpeg", "a.jpg"), ("a.png", "a")]
)
def test_image_of_nearly_the_same_name_is_told(place, prepared, there, stated):
    (place / "images" / "a.png").rename(place / "images" / there)
    (place / "a.json").write_text(coco(images=[COCO["images"][0] | {"file_name": stated}]))
    code, said = prepared("a.json", "images", "--out", "out")
    assert code == 2 and f"the file does not exist; {there} does, whose name has other case" in said


def test_folder_of_folders_says_where_annotations_are(place, prepared):
    for name in ("set/train/a.xml", "set/cam/day/a.xml"):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text(VOC)
    for name in ("set/coco/x.json", "set/coco/y.json"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(coco())
    (place / "set" / "empty").mkdir()
    code, said = prepared("set", "--out", "out")
    listed = "set/cam/day and set/coco/x.json and set/coco/y.json and set/train"
    assert code == 2 and f"found cam, coco, empty, train; annotations are in {listed}: name one of them" in said


def test_link_out_of_the_folder_is_refused_unless_allowed(place, prepared):
    (place / "secret").mkdir()
    (place / "images" / "a.png").rename(place / "secret" / "a.png")
    (place / "images" / "a.png").symlink_to(place / "secret" / "a.png")
    (place / "linked").symlink_to(place / "images")
    (place / "a.json").write_text(coco())
    with pytest.raises(InputError, match="lies outside the folder of the images"):
        load_annotated(place / "a.json", ReadingRules(images=place / "images"))
    with pytest.raises(InputError, match="lies outside the folder of the images"):
        load_annotated(place / "a.json", ReadingRules(images=place / "linked"))
    code, said = prepared("a.json", "images", "--out", "out")
    assert code == 2 and "allow that (--allow-outside)" in said
    code, said = prepared("a.json", "images", "--out", "out", "--allow-outside")
    assert code == 0 and "1 record" in said and "allow that wherever this is read" in said
    allowed = ReadingRules(allow_outside=True)
    assert len(load_annotated(place / "out", allowed)) == 1
    assert len(load_annotated(place / "a.json", allowed.model_copy(update={"images": place / "images"}))) == 1


@pytest.mark.parametrize("below", ["voc/a.xml", "photos/deep/instances.json"])
def test_annotations_below_the_file_that_is_read_are_told(place, prepared, below):
    (place / "set/labels.csv").parent.mkdir()
    (place / "set/labels.csv").write_text("image,label,xmin,ymin,xmax,ymax\na.png,cat,1,2,30,40\n")
    Image.new("RGB", (64, 48)).save(place / "set/a.png")
    _, alone = prepared("set", "--out", "out")
    assert "are not" not in alone
    (place / "set" / below).parent.mkdir(parents=True)
    (place / "set" / below).write_text(VOC if below.endswith("xml") else coco())
    code, said = prepared("set", "--out", "out2")
    assert code == 0
    assert f"labels.csv is read; the annotations in {below.rpartition('/')[0]} are not" in said
