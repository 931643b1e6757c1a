"""Which image of a folder a record means."""

import pytest
from PIL import Image

from coord_data.formats.registry import FORMATS
from coord_data.looking.image_paths import SIMILAR, ImageIndex, found_here
from coord_data.reading.image_set import gather_evidence
from coord_data.reading.rules import ReadingRules

CASES = {
    "another folder's image": (["cam2/0.jpg"], [("cam1/0.jpg",)], ["0.jpg lies in another folder"]),
    "without its folder": (["cam2/0.jpg"], [("0.jpg",)], [("cam2/0.jpg", "similar")]),
    "in a folder above": (["cam2/0.jpg"], [("train/cam2/0.jpg",)], ["cam2/0.jpg lies in another folder"]),
    "in a folder below": (["train/cam2/0.jpg"], [("cam2/0.jpg",)], [("train/cam2/0.jpg", "similar")]),
    "flat, stated in a folder": (["0.jpg"], [("cam1/0.jpg",)], ["0.jpg lies in another folder"]),
    "with the images' own folder": (["0.jpg"], [("images/0.jpg",)], ["0.jpg"]),
    "of Windows": (["0.jpg", "d.jpg"], [("images\\0.jpg",), (r"C:\me\d.jpg",)], ["0.jpg", ("d.jpg", "similar")]),
    "another suffix": (["a.png"], [("a.jpg",)], [("a.png", "similar")]),
    "another suffix, that of another record": (["a.png"], [("a.jpg",), ("a.png",)], ["stated by another", "a.png"]),
    "two records": (["a.png"], [("a.jpg",), ("a",)], ["stated by another", "stated by another"]),
    "two suffixes": (["a.jpg", "a.png"], [("a",)], ["expected one file, found a.jpg and a.png"]),
    "two folders": (["1/a.jpg", "2/a.jpg"], [("a.jpg",)], ["expected one file, found 1/a.jpg and 2/a.jpg"]),
    "same suffix first": (["1/a.jpg", "1/a.png"], [("a.jpg",)], [("1/a.jpg", "similar")]),
    "the second name": (["1.jpg"], [("VG_100K/1.jpg", "1.jpg")], ["1.jpg"]),
    "what macOS writes": (["x/._a.jpg"], [("._a.jpg",)], ["._a.jpg"]),
    "missing": (["b.jpg"], [("a.jpg",)], ["a.jpg"]),
    "too long": ([], [("a" * 300 + ".jpg",)], ["a" * 300 + ".jpg"]),
}


@pytest.mark.parametrize("case", CASES)
def test_image_index_takes_no_image_but_the_one_that_is_meant(tmp_path, case):
    files, stated, wanted = CASES[case]
    for name in files:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for found, want in zip(ImageIndex(tmp_path / "images").find_all(stated), wanted, strict=True):
        if found.fault:
            assert want in found.fault
        else:
            assert (found.name, found.notes) == ((want[0], (SIMILAR,)) if isinstance(want, tuple) else (want, ()))


def test_suffix_in_the_other_case_is_the_same_image(tmp_path):
    for name in ("a.jpg", "b.JPEG", "c.png"):
        (tmp_path / name).touch()
    found = found_here(["a.JPG", "b.jpeg", "c.png", "d.JPG"], tmp_path)
    assert {name: image.name for name, image in found.items()} == {"a.JPG": "a.jpg", "b.jpeg": "b.JPEG"}
    assert all(image.notes for image in found.values())


STATING = {
    name: row for name, row in FORMATS.items() if any("a.jpg" in text for text in row.examples["box"].files.values())
}


@pytest.mark.parametrize("name", STATING)
def test_every_reader_finds_and_counts_an_image_whose_suffix_is_in_the_other_case(tmp_path, name):
    example = STATING[name].examples["box"]
    Image.new("RGB", (100, 50), "green").save(tmp_path / "a.jpg")
    for path, text in example.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text.replace("a.jpg", "a.JPG"))
    found = gather_evidence(tmp_path / example.named, ReadingRules(images=tmp_path, format=name))
    assert [instance.image for instance in found.annotations.instances] == list(found.raw.files) == ["a.jpg"]
    assert found.files[0].fault is None
    assert found.annotations.notes[SIMILAR] == 1
