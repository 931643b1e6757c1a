"""Files about images: none outside of their folder, none for two images."""

from pathlib import Path

import pytest

from coord_eval.labelling.file_names import places_of


@pytest.mark.parametrize(
    "images",
    [
        ["a.jpg", "a.png", "b/a.jpg"],
        ["../../photos/a.jpg", "/photos/a.jpg", "..\\a.jpg", "b/../../a.jpg"],
        ["a.png", "a.jpg/b.png"],
        ["SAME.webp", "same.png"],
        ["a.txt.png", "a.txt/b.png", "x.tar.jpg"],
        ["a.png", "a.jpg", "a.jpg.png", "a.png.jpg", "a.jpg.jpg.txt.png"],
        ["x" * 250 + ".png", "x" * 250 + ".jpg", "日" * 84 + ".png"],
    ],
)
@pytest.mark.parametrize("suffix", [".jpg", ".txt"])
def test_every_image_has_a_file_of_its_own_below_the_folder(tmp_path, images, suffix):
    found = places_of(images, tmp_path / "drawn", suffix)
    for path in found.values():
        assert path.resolve().is_relative_to(tmp_path / "drawn") and path.suffix == suffix
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("once", "utf-8")
    assert len({str(path).casefold() for path in found.values()}) == len(images)


def test_usual_names_change_their_suffix_alone():
    assert places_of(["a.b.jpg", "c/d.png"], Path("f"), ".xml") == {
        "a.b.jpg": Path("f/a.b.xml"),
        "c/d.png": Path("f/c/d.xml"),
    }
