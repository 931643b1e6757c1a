"""Files and modules of a user, imported once each, and files of other tools told by their beginning."""

import hashlib
import sys

import pytest

from coord_codec import InputError
from coord_codec.commands.foreign import tool_of
from coord_codec.commands.plugins import import_plugins, plugin_digests


@pytest.fixture
def own_modules():
    """Forget the modules that a test imports."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("own_modules")
def test_each_plugin_is_imported_once_and_named_by_the_digest_of_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "runs", [], raising=False)
    names = ["first.py", "sub/first.py", "dotted_plugin"]
    (tmp_path / "sub").mkdir()
    for name in names:
        path = tmp_path / (name if name.endswith(".py") else f"{name}.py")
        path.write_text(f"import sys\nsys.runs.append({name!r})\n")
    import_plugins(names[:1])
    import_plugins([*names, str(tmp_path / "first.py")])
    assert sys.runs == names
    digests = {n: hashlib.sha256(f"import sys\nsys.runs.append({n!r})\n".encode()).hexdigest() for n in names}
    assert plugin_digests(names) == digests


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize("text", ["raise ValueError('no')", "import no_such_module", "1 +"])
def test_plugin_that_fails_is_named_and_tried_again(tmp_path, text):
    path = tmp_path / "own.py"
    with pytest.raises(InputError, match=r"^run.plugins: .*own\.py: no such file"):
        import_plugins([str(path)], key="run.plugins")
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(InputError, match=r"^--plugin: .*own\.py: importing it raises"):
            import_plugins([str(path)])
    path.write_text("")
    import_plugins([str(path)])
    with pytest.raises(InputError, match="no_such_plugin: importing it raises ModuleNotFoundError"):
        import_plugins(["no_such_plugin"])


CORNERS = "10.0 10.5 20 10 20 20 10 20"
BEGINNINGS = {
    "SA-1B of SAM": ['{"image": {"image_id": 1, "width": 5}, "annotations": [{"predicted_iou": 0.9}]}'],
    "CVAT video XML": ['<?xml version="1.0"?>\n<annotations><meta/><track id="0">'],
    "CVAT image XML": ['<annotations>\n<version>1.1</version><image id="0">'],
    "LabelMe XML": ["<annotation><filename>a.jpg</filename><object><polygon><pt>"],
    "Pascal VOC XML": ["<annotation><object><bndbox><xmin>1</xmin>"],
    "DOTA": [
        "imagesource:GoogleEarth\ngsd:0.1\n",
        *(f"{CORNERS} {end}" for end in ("plane 0\n", "plane 2", "ship 1\n", "7 2\n", "small-vehicle")),
    ],
    "KITTI": [
        "Car 0.00 0 -1.57 614.2 181.7 727.3 284.7 1.57 1.73 4.15 1.00 1.75 13.22 1.62\n",
        "Person sitting 0 3 0 1 2 3 4 1 1 1 1 1 1 0 0.9\n",
    ],
    "VisDrone": ["10,20,30,40,1,11,0,2\n", "10,20,30,40,0,0,1,0,\n"],
    "MOT": ["1,-1,794.2,247.5,71.2,174.8,0.9,-1,-1,-1\n", "1, 2, 3.5, 4, 5, 6, 1\n", "10,20,30,40,2,11,0,2\n"],
    "ICDAR": ["10,10,20,10,20,20,10,20,word\n", "10, 10, 20, 10, 20, 20, 10, 20, a word, more\n"],
    "WIDER FACE": ["0--Parade/a.jpg\n1\n449 330 122 149 0 0 0 0 0 0\n"],
    "Cartucho's mAP": ["cat 0.9 10 20 30 40\n", "dog 10 20 30 40\n", "dog 10 20 30 40 difficult\n"],
    "YOLO labels": ["0 0.5 0.5 0.25 0.25\n", "12 0.1 0.1 0.2 0.2 0.3 0.3\n"],
    "": ["", "{}", '{"image": "a.jpg"}', "cat\n", "1 2 3\n", "10,20,30\n", "<html>"],
}


@pytest.mark.parametrize(("tool", "text"), [(tool, text) for tool, texts in BEGINNINGS.items() for text in texts])
def test_tool_is_told_by_the_beginning_of_its_file(tmp_path, tool, text):
    for content in (text.encode(), b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()):
        (tmp_path / "a.txt").write_bytes(content)
        assert tool_of(tmp_path / "a.txt") == tool
    assert tool_of(tmp_path / "none.txt") == ""
