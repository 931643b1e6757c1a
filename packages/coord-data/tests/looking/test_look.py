"""A look at an image tells what its file holds; what is kept of it is read back, cut, numbered and merged unchanged."""

import hashlib
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from PIL import Image
from pyarrow import ArrowInvalid

from coord_codec import InputError
from coord_data.looking import image_file, look
from coord_data.looking.image_file import ImageFolder, look_inside, problem_of, where_it_is
from coord_data.looking.look import look_at, look_at_images
from coord_data.looking.looks import ImageFile, Looks, merge


def saved(path, size, orientation=1, noise=50, **options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.effect_noise(size, noise).convert("RGB").save(path, exif=exif, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """Images of every kind: upright, turned, large, wide, deep, damaged, none, and a folder; one lies elsewhere."""
    root = tmp_path / "images"
    (root / "folder.png").mkdir(parents=True)
    saved(root / "a.png", (64, 48))
    saved(root / "turned.jpg", (64, 48), 6)
    saved(root / "large.png", (700, 500))
    saved(root / "wide.jpg", (1600, 400))
    deep = np.zeros((48, 64), np.uint16)
    deep[:, 30:] = 9000
    Image.fromarray(deep).save(root / "deep.png")
    (root / "damaged.png").write_bytes((root / "a.png").read_bytes()[:900])
    saved(tmp_path / "outside.png", (20, 10))
    return root


NAMES = [
    "a.png",
    "turned.jpg",
    "large.png",
    "wide.jpg",
    "deep.png",
    "damaged.png",
    "gone.png",
    "folder.png",
    "../outside.png",
]


def test_look_tells_what_each_file_holds(folder):
    found = look_at_images(NAMES, folder, folder, kept=range(100, 120), first=100)
    assert found.table["row"].to_pylist() == list(range(100, 109))
    files = dict(zip(NAMES, found, strict=True))
    sizes = {
        "a.png": (64, 48),
        "turned.jpg": (48, 64),
        "large.png": (700, 500),
        "wide.jpg": (1600, 400),
        "deep.png": (64, 48),
    }
    assert {name: file.size for name, file in files.items() if file.size} == sizes
    assert {name: file.stored_size for name, file in files.items() if file.size} == sizes | {"turned.jpg": (64, 48)}
    assert [name for name, file in files.items() if file.orientation != 1] == ["turned.jpg"]
    assert {name: file.value_range for name, file in files.items() if file.value_range} == {"deep.png": (0, 9000)}
    small = {name: file.small.size for name, file in files.items() if file.small}
    assert small == sizes | {"large.png": (320, 229), "wide.jpg": (320, 80)}
    for name, file in files.items():
        content = (folder / name).read_bytes() if (folder / name).is_file() else b""
        if name in sizes:
            assert (
                file.digest == hashlib.sha256(content).hexdigest()
                and file.look is not None
                and file.grey.shape == (64, 64)
            )
        status = (folder / name).stat() if content else None
        assert file.stamp == ((status.st_size, status.st_mtime_ns) if status else (-1, -1)), name
    faults = {name: file.fault for name, file in files.items() if file.fault}
    assert [*faults] == ["damaged.png", "gone.png", "folder.png", "../outside.png"] and [*found.faults] == [5, 6, 7, 8]
    told = ("cannot be decoded", "does not exist", "is no file", f"outside the folder of the images {folder}")
    assert all(text in fault for text, fault in zip(told, faults.values(), strict=True))


def test_file_that_fails_while_it_is_read_keeps_its_stamp(folder, monkeypatch):
    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(look, "facts_and_image", fail)
    (found,) = look_at_images(["a.png"], folder)
    assert found.fault == "cannot be decoded (Input/output error)"
    assert found.stamp == ((folder / "a.png").stat().st_size, (folder / "a.png").stat().st_mtime_ns)


@pytest.mark.parametrize(("decode", "keep"), [(True, True), (True, False), (False, False)])
def test_look_at_one_file_keeps_what_is_asked_for(folder, decode, keep):
    found = look_at(folder / "turned.jpg", decode=decode, keep=keep)
    assert (found.size, found.stored_size, found.orientation) == ((48, 64), (64, 48), 6)
    assert (bool(found.digest), found.small is not None, found.look is not None) == (decode, keep, decode)
    assert look_at(folder / "gone.png", decode=decode).fault == "the file does not exist"
    assert (look_at(folder / "damaged.png", decode=decode).fault is not None) == decode


@pytest.mark.parametrize(
    ("name", "is_outside"),
    [
        ("a.png", False),
        ("../images/a.png", False),
        ("../outside.png", True),
        ("../gone.png", False),
        ("link.png", True),
    ],
)
def test_image_outside_its_folder_is_a_fault_if_it_is_there(folder, name, is_outside):
    (folder / "link.png").symlink_to(folder.parent / "outside.png")
    for decode in (True, False):
        fault = look_inside(folder / name, folder, decode=decode).fault or ""
        assert ("outside the folder" in fault) == is_outside and ("does not exist" in fault) == ("gone" in name)
        assert look_inside(folder / name, None, decode=decode).fault in (None, "the file does not exist")


def test_thumbnail_of_a_photograph_is_as_sharp_as_its_pixels(tmp_path):
    pixels = np.zeros((360, 1400, 3), np.uint8)
    pixels[:, ::8] = pixels[:, 1::8] = pixels[:, 2::8] = pixels[:, 3::8] = 255
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=95)
    small = np.asarray(look_at(tmp_path / "a.jpg", keep=True).small, float)
    exact = Image.fromarray(pixels)
    exact.thumbnail((320, 320), Image.Resampling.BOX)
    assert small.shape == (82, 320, 3) and np.abs(small - np.asarray(exact, float)).mean() < 12


GREY = np.arange(4096, dtype=np.uint8).reshape(64, 64)
FILES = [
    ImageFile((64, 48), None, 6, (48, 64), ("cut", "grey"), "ab" * 32, 2**63 + 5, GREY,
              Image.effect_noise((30, 20), 40).convert("RGB"), (900, 12345678901), (0.0, 900.0)),
    ImageFile(None, "is no file", stamp=(-1, -1)),
    ImageFile((10, 20), None, 1, (10, 20), (), "cd" * 32, 0, np.full((64, 64), 7, np.uint8), None, (1, 2), None),
    ImageFile((5, 6), None, 1, (5, 6), (), "ef" * 32, 9, GREY.T, Image.new("RGB", (5, 6), "red"), (3, 4), (-2.0, 0.0)),
]  # fmt: skip


def equal(one, other):
    """Return whether all fields of two looks are equal."""
    pairs = ((getattr(one, f.name), getattr(other, f.name)) for f in fields(ImageFile))
    return all(
        np.array_equal(np.asarray(a), np.asarray(b)) if isinstance(a, np.ndarray | Image.Image) else a == b
        for a, b in pairs
    )


def same(looks, files):
    """Return whether the looks are these files, one by one and in their columns."""
    columns = {
        "sizes": [file.size or (0, 0) for file in files],
        "orientations": [file.orientation for file in files],
        "hashes": [file.look or 0 for file in files],
        "stamps": [file.stamp for file in files],
        "ranges": [file.value_range or (np.nan, np.nan) for file in files],
        "digests": [np.frombuffer(bytes.fromhex(file.digest or "00" * 32), np.uint64) for file in files],
    }
    whole = all(
        np.array_equal(getattr(looks, name), values, equal_nan=name == "ranges") for name, values in columns.items()
    )
    known = looks.compared == [n for n, f in enumerate(files) if f.small] and looks.faults == {
        n: f.fault for n, f in enumerate(files) if f.fault
    }
    shown = all(
        equal(replace(ImageFile(None), small=looks.thumbnail(n)), replace(ImageFile(None), small=f.small))
        for n, f in enumerate(files)
    )
    return whole and known and shown and len(looks) == len(files) and all(map(equal, looks, files))


def test_looks_are_read_back_cut_and_numbered_field_by_field(tmp_path):
    looks = Looks.of(enumerate(FILES, 10))
    assert same(looks, FILES) and equal(looks[-1], FILES[-1])
    looks.write(tmp_path / "a.parquet", "these")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"] and same(
        Looks.read(tmp_path / "a.parquet", "these"), FILES
    )
    for chosen in (slice(1, 3), slice(None, None, -1), slice(2, None)):
        assert same(looks[chosen], FILES[chosen])
    assert same(looks.take(np.array([3, 0, 3])), [FILES[3], FILES[0], FILES[3]])
    again = looks[1:].numbered(np.array([0, 10, 11]))
    assert same(again, FILES[1:]) and again.table["row"].to_pylist() == [0, 10, 11] and [*again.thumbnails] == [11]
    with pytest.raises(InputError, match="other settings"):
        Looks.read(tmp_path / "a.parquet", "")
    looks.write(tmp_path / "b.parquet", "")
    with pytest.raises(InputError, match="other settings"):
        Looks.read(tmp_path / "b.parquet", "these")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises((ArrowInvalid, OSError)):
        Looks.read(tmp_path / "b.parquet", "these")


@pytest.mark.parametrize("order", [[0, 1], [1, 0], [0, 1, 0], [1, 0, 2]])
def test_parts_are_merged_in_the_order_of_all_images_each_of_them_once(order):
    parts = [Looks.of(enumerate(FILES[:2])), Looks.of(enumerate(FILES[2:], 2)), Looks.of(enumerate(FILES[1:3], 1))]
    assert same(merge(parts[k] for k in order), FILES) and len(merge([])) == 0
    many = [Looks.of([(row, FILES[row % 4])]) for row in range(150)]
    assert same(merge(many), [FILES[row % 4] for row in range(150)]) and same(
        merge(many[::-1]), [FILES[row % 4] for row in range(150)]
    )


def test_part_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def fail(table, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(OSError, match="No space"):
        Looks.of(enumerate(FILES)).write(tmp_path / "a.parquet", "these")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "stated", "ratio", "told"),
    [
        (ImageFile(None, "is no file"), (None, None), None, "image: is no file"),
        (ImageFile((60, 20), stored_size=(60, 20)), (None, None), 3.0, None),
        (
            ImageFile((61, 20), stored_size=(61, 20)),
            (None, None),
            3.0,
            "the file has 61 x 20 pixels; the ratio of its sides exceeds max_side_ratio=3",
        ),
        (ImageFile((20, 61), stored_size=(20, 61)), (20, 61), 3.0, "max_side_ratio=3"),
        (ImageFile((900, 2), stored_size=(900, 2)), (900, 2), None, None),
        (ImageFile((60, 20), stored_size=(60, 20)), (60, None), None, None),
        (ImageFile((60, 20), stored_size=(60, 20)), (None, 21), None, None),
        (ImageFile((60, 20), stored_size=(60, 20)), (60, 21), None, "say 60 x 21 pixels, the file has 60 x 20"),
        (ImageFile((60, 20), stored_size=(60, 20)), (20, 60), None, "has 60 x 20: width and height are exchanged"),
        (ImageFile((60, 20), None, 6, (20, 60)), (20, 60), None, "before the EXIF orientation is applied"),
        (ImageFile((60, 20), None, 6, (20, 60)), (60, 20), None, None),
    ],
)
def test_image_is_refused_for_its_fault_its_sides_or_another_size_and_else_its_notes_count(
    tmp_path, file, stated, ratio, told
):
    notes = Counter({"old": 1})
    problem = problem_of(replace(file, notes=("cut", "grey")), tmp_path / "a.png", stated, notes, ratio)
    assert (problem is not None) == (told is not None) and (told is None or told in str(problem))
    assert notes == (Counter({"old": 1, "cut": 1, "grey": 1}) if told is None else {"old": 1})
    if told is not None:
        assert (problem.where, problem.field) == (
            str(tmp_path / "a.png"),
            "image" if file.size is None else "width, height",
        )


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("x/a.png", ""),
        ("x/B.png", "; b.PNG does, whose name"),
        ("x/b.jpeg", "; b.PNG does, whose name"),
        ("x/B", "; b.PNG does, whose name"),
        ("x/notes.png", ""),
        ("none/a.png", ""),
        ("http:/x.org/a.png", "; an address is not fetched"),
        ("s3:/bucket/a.png", "; an address is not fetched"),
        ("gs:/bucket/a.png", "; an address is not fetched"),
        ("data/local-files/?d=a.png", "Label Studio"),
        ("x/data/upload/1/a.png", "Label Studio"),
    ],
)
def test_missing_image_is_told_with_where_it_may_be(tmp_path, path, hint):
    (tmp_path / "x").mkdir()
    for name in ("b.PNG", "notes.txt"):
        (tmp_path / "x" / name).touch()
    told = problem_of(ImageFile(None, image_file.MISSING), tmp_path / path, (None, None), Counter(), None)
    assert told.message.startswith(image_file.MISSING) and (
        hint in told.message if hint else told.message == image_file.MISSING
    )
    other = problem_of(ImageFile(None, "is no file"), tmp_path / path, (None, None), Counter(), None)
    assert other.message == "is no file"


@pytest.mark.parametrize(
    ("there", "annotations", "name", "told"),
    [
        ("set/x/a.png", "set/a.json", "a.png", ": {}/set/x"),
        ("set/x/y/a.png", "set/a.json", "y/a.png", ": {}/set/x"),
        ("set/x/a.png", "set/a.json", "y/a.png", ": {}/set/x, once they are written as a.png"),
        ("set/x/a.png", "set/a.json", "y\\a.png", ": {}/set/x, once they are written as a.png"),
        ("set/x/a.png", "set", "a.png", ": {}/set/x"),
        ("a.png", "set/a.json", "a.png", ": {}"),  # beside a folder without subfolders
        ("set/.hidden/a.png", "set/a.json", "a.png", ""),
        ("set/x/b.png", "set/a.json", "a.png", ""),
    ],
)
def test_folder_of_a_missing_image_is_searched(tmp_path, there, annotations, name, told):
    for path in (tmp_path / there, tmp_path / "set" / "a.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert where_it_is(name, tmp_path / annotations) == told.format(tmp_path)


def test_folder_looks_again_only_for_what_is_asked_besides(folder, monkeypatch):
    looked = []
    real = image_file.look_at_set
    monkeypatch.setattr(
        image_file,
        "look_at_set",
        lambda names, *rest: looked.append((list(names), sorted(rest[2]))) or real(names, *rest),
    )
    images = ImageFolder(folder)
    first = images.look_at_all(["a.png", "large.png"], [0], folder)
    assert first.compared == [0] and looked.pop() == (["a.png", "large.png"], [0])
    assert images.look_at_all(["large.png", "./a.png"], [1], folder).compared == [1] and looked == []
    assert images.look_at_all(["large.png"], (), None)[0].size == (700, 500) and looked == []
    assert images.look_at_all(["large.png"], [0], folder).compared == [0] and looked.pop() == (["large.png"], [0])
    assert images.look_at_all(["a.png", "wide.jpg"], (), folder)[1].size == (1600, 400) and looked.pop()[0] == [
        "a.png",
        "wide.jpg",
    ]
    assert images.looked("wide.jpg").size == (1600, 400) and images.size("wide.jpg") == (1600, 400)
    other = folder / "folder.png"
    assert "outside" in images.look_at_all(["a.png"], (), other)[0].fault and looked.pop()[0] == ["a.png"]


def test_images_looked_at_alone_are_not_opened_again_unless_more_is_asked(folder, monkeypatch):
    looked = []
    real = image_file.look_at_set
    monkeypatch.setattr(
        image_file, "look_at_set", lambda names, *rest: looked.append(list(names)) or real(names, *rest)
    )
    monkeypatch.setattr(image_file, "_THUMBNAILS", 2)
    images = ImageFolder(folder)
    for name in ("a.png", "large.png", "wide.jpg", "../outside.png", "gone.png"):
        images.look_at(name)
    names = ["turned.jpg", "a.png", "large.png", "wide.jpg", "../outside.png", "gone.png"]
    found = images.look_at_all(names, [1, 3], folder)  # the third one alone was kept without a thumbnail
    assert looked == [["turned.jpg", "wide.jpg"]] and found.compared == [1, 3]
    assert [file.size for file in found] == [(48, 64), (64, 48), (700, 500), (1600, 400), None, None]
    assert "outside" in found[4].fault and found[5].fault == "the file does not exist"
    headers = ImageFolder(folder, decode=False)
    assert headers.size("a.png") == (64, 48) and not headers.look_at("a.png").digest
    assert headers.look_at_all(["a.png"])[0].digest
