"""Images that cannot be trained on are named, whatever their name is; each file is opened once."""

import pytest
from PIL import Image

from coord_data.looking.image_file import ImageFolder
from coord_data.looking.look import is_outside, look_at


@pytest.mark.parametrize("name", ["a" * 300 + ".jpg", "b/" + "a" * 300 + ".jpg", "a" * 300 + "/b.jpg", "a\0.jpg"])
@pytest.mark.parametrize("decode", [True, False])
def test_look_at_names_an_image_whose_name_no_file_can_have(tmp_path, name, decode):
    found = look_at(tmp_path / name, decode=decode)
    assert found.size is None and found.fault and not is_outside(tmp_path / name, tmp_path)


def test_look_at_all_keeps_the_thumbnails_that_are_asked_for(tmp_path):
    names = [f"{n}.png" for n in range(6)]
    for n, name in enumerate(names[:5]):
        Image.new("RGB", (20 + n, 10), (n, n, n)).save(tmp_path / name)
    found = ImageFolder(tmp_path).look_at_all([*names, "./1.png"], kept=[1])
    assert [file.size for file in found] == [*((20 + n, 10) for n in range(5)), None, (21, 10)]
    assert [bool(file.digest) for file in found] == [True] * 5 + [False, True]
    assert [file.small is not None for file in found] == [False, True, False, False, False, False, True]
    assert found[5].fault == "the file does not exist"


def test_image_folder_opens_a_file_once_for_its_size_and_its_check(tmp_path, monkeypatch):
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    folder = ImageFolder(tmp_path)
    assert folder.size("a.png") == (20, 10)
    (tmp_path / "a.png").unlink()
    assert folder.look_at_all(["a.png", "./a.png"])[1].size == folder.look_at("a.png").size == (20, 10)
