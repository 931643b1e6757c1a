"""Annotations and images at addresses and in archives are read as if they lay on this machine."""

import io
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from changes import change_alone
from PIL import Image
from tar_files import tar
from typer.testing import CliRunner

from coord_codec import InputError
from coord_data import remote
from coord_data.cli import app
from coord_data.remote import image_folder, local_path, suffix_of

fsspec = pytest.importorskip("fsspec", reason="needs the extra coord-data[remote]")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def contents():
    """Annotations and images by their path."""
    files = {}
    for n in range(4):
        buffer = io.BytesIO()
        pixels = np.random.default_rng(n).integers(0, 255, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, "PNG")
        files[f"images/{n}.png"] = buffer.getvalue()
    objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.7]}]
    lines = (json.dumps({"image": f"{n}.png", "objects": objects}) + "\n" for n in range(4))
    return files | {"a.jsonl": "".join(lines).encode()}


@pytest.fixture
def local(contents, tmp_path):
    for name, content in contents.items():
        (tmp_path / "local" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "local" / name).write_bytes(content)
    return tmp_path / "local"


@pytest.fixture
def memory(contents):
    system = fsspec.filesystem("memory")
    for name, content in contents.items():
        system.pipe(f"/bucket/{name}", content)
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


@pytest.fixture
def web(local):
    handler = partial(SimpleHTTPRequestHandler, directory=str(local))
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def findings(data, images, out):
    done = CliRunner().invoke(app, ["inspect", data, "--images", images, "--out", str(out)])
    assert done.exit_code in (0, 1), (done.output, done.exception)
    return json.loads((out / "findings.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "web"])
def test_findings_are_those_of_local_files(kind, request, local, tmp_path):
    if kind == "web":
        pytest.importorskip("aiohttp", reason="needs the extra coord-data[remote]")
    address = request.getfixturevalue(kind)
    found = findings(f"{address}/a.jsonl", f"{address}/images", tmp_path / "far")
    assert found == findings(str(local / "a.jsonl"), str(local / "images"), tmp_path / "near") and found


def test_only_what_has_changed_is_copied_again(memory, contents, caplog):
    caplog.set_level("INFO", "coord_data")
    folder = local_path(f"{memory}/images")
    assert {path.name for path in folder.glob("*.png")} == {f"{n}.png" for n in range(4)}
    fsspec.filesystem("memory").pipe("/bucket/images/2.png", contents["images/3.png"])
    caplog.clear()
    assert local_path(f"{memory}/images") == folder and "1 file copied" in caplog.text
    assert (folder / "2.png").read_bytes() == contents["images/3.png"]


@pytest.mark.parametrize("kind", ["memory", "web"])
def test_copy_has_the_files_that_are_there_now_and_each_is_copied_once(kind, request, contents, local, caplog):
    """The server has no ETag, and its listing escapes the names."""
    if kind == "web":
        pytest.importorskip("aiohttp", reason="needs the extra coord-data[remote]")
    address, system = request.getfixturevalue(kind), fsspec.filesystem("memory")
    odd = ("two words.png", "a#1.png", "sub folder/50%.png")
    for name in odd:
        system.pipe(f"/bucket/images/{name}", contents["images/0.png"])
        (local / "images" / name).parent.mkdir(exist_ok=True)
        (local / "images" / name).write_bytes(contents["images/0.png"])
    caplog.set_level("INFO", "coord_data")
    folder = local_path(f"{address}/images")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.png")}
    assert names == {f"{n}.png" for n in range(4)} | {*odd} and "7 files copied" in caplog.text
    caplog.clear()
    assert local_path(f"{address}/images") == folder and caplog.text == ""
    system.rm("/bucket/images/2.png")
    (local / "images" / "2.png").unlink()
    assert local_path(f"{address}/images") == folder and "1 file no longer there" in caplog.text
    assert not (folder / "2.png").exists() and (folder / "1.png").is_file() and "copied" not in caplog.text
    system.rm("/bucket", recursive=True)
    system.pipe("/bucket/a.jsonl", b"")  # for the fixture's end


@pytest.mark.parametrize("address", ["memory://none/at-all", "nosuch://a/b", "http://127.0.0.1:9/a.json"])
def test_address_without_anything_is_refused_in_a_sentence(address):
    with pytest.raises(InputError, match=address):
        local_path(address)


@pytest.mark.slow
def test_images_of_a_tar_and_of_a_parquet_file_are_those_of_their_folder(contents, local, tmp_path):
    images = {name.partition("/")[2]: content for name, content in contents.items() if name.endswith(".png")}
    tar(tmp_path / "shard.tar", images | {"0.cls": b"7"})
    rows = [{"bytes": content, "path": name} for name, content in images.items()]
    pa.parquet.write_table(pa.table({"label": [1, 2, 3, 4], "image": rows}), tmp_path / "shard.parquet")
    near = findings(str(local / "a.jsonl"), str(local / "images"), tmp_path / "near")
    for suffix in ("tar", "parquet"):
        found = findings(str(local / "a.jsonl"), str(tmp_path / f"shard.{suffix}"), tmp_path / suffix)
        assert found == near, suffix
        unpacked = image_folder(tmp_path / f"shard.{suffix}")
        assert {path.name: path.read_bytes() for path in unpacked.glob("*.png")} == images


def test_images_of_a_tar_are_told_by_endings_in_any_case(contents, tmp_path):
    content = contents["images/0.png"]
    tar(tmp_path / "a.tar", {"A.PNG": content, "b.Png": content, "c.txt": b"PNG"})
    assert {path.name for path in image_folder(tmp_path / "a.tar").iterdir() if path.name[0] != "."} == {
        "A.PNG",
        "b.Png",
    }


def test_name_that_leads_out_of_the_folder_is_refused(contents, tmp_path):
    tar(tmp_path / "a.tar", {"../../b.png": contents["images/0.png"]})
    with pytest.raises(InputError, match=r"b\.png"):
        image_folder(tmp_path / "a.tar")
    assert not list(tmp_path.rglob("b.png"))


def test_images_of_one_name_in_several_shards_are_refused_and_nothing_is_overwritten(contents, tmp_path):
    for number in (0, 1):
        tar(tmp_path / f"shard-{number}.tar", {"0.png": contents[f"images/{number}.png"]})
    for _ in range(2):  # what the first call left is not taken for a complete folder
        with pytest.raises(InputError, match=r"different names, found several 0\.png"):
            image_folder(tmp_path / "shard-*.tar")


class Told:
    """A file system of one file, which tells some facts of it, and counts how often it is read."""

    def __init__(self, **facts):
        self.facts, self.content, self.read = facts, b"one", 0

    def isdir(self, path):
        return False

    def info(self, path):
        return {"name": path, **self.facts}

    def open(self, path, mode):
        self.read += 1
        return io.BytesIO(self.content)


FACTS = ("ETag", "etag", "Last-Modified", "mtime", "LastModified", "last_modified", "created", "blob_id")


@pytest.mark.parametrize("fact", [*FACTS, "size", None])
def test_copy_is_made_again_when_any_fact_changes_and_always_where_none_is_told(fact):
    system = Told(size=3, **{"ETag": 0} if fact == "size" else {fact: 0} if fact else {})
    place = remote._copied(system, "/b/a.json", "fs://b/a.json")
    assert (place.name, place.read_bytes()) == ("a.json", b"one")
    remote._copied(system, "/b/a.json", "fs://b/a.json")
    assert system.read == (1 if fact else 2)
    system.content, system.facts = b"two", system.facts | ({fact: 1} if fact else {})
    assert remote._copied(system, "/b/a.json", "fs://b/a.json").read_bytes() == b"two"


def test_copy_that_is_gone_is_made_again_and_each_address_has_its_own():
    system = Told(size=3, ETag=0)
    first = remote._copied(system, "/b/a.json", "fs://b/a.json")
    first.unlink()
    assert remote._copied(system, "/b/a.json", "fs://b/a.json").is_file()
    assert remote._copied(system, "/c/a.json", "fs://c/a.json") != first and system.read == 3


@pytest.mark.parametrize("suffix", ["tar", "parquet"])
@pytest.mark.parametrize("fact", ["size", "time"])
def test_images_of_an_archive_that_changed_are_unpacked_anew(contents, tmp_path, suffix, fact):
    path = tmp_path / f"a.{suffix}"
    if suffix == "tar":
        tar(path, {"0.png": contents["images/0.png"]})
    else:
        pa.parquet.write_table(pa.table({"image": [contents["images/0.png"]]}), path)
    before = image_folder(path)
    assert image_folder(path) == before
    if suffix == "parquet" and fact == "size":
        pa.parquet.write_table(pa.table({"image": [contents["images/0.png"]], "n": [1]}), path)
    else:
        change_alone(path, fact)
    assert image_folder(path) != before


def test_images_without_names_are_numbered_through_all_files_and_rows_without_one_are_passed_over(contents, tmp_path):
    images = list(contents.values())
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "JPEG")
    for n, rows in enumerate(([images[0], None, images[1]], [images[2], buffer.getvalue()])):
        encoded = [{"bytes": row, "path": None} for row in rows] if n else rows
        pa.parquet.write_table(pa.table({"depth": encoded[::-1], "image": encoded}), tmp_path / f"part-{n}.parquet")
    folder = image_folder(tmp_path / "part-*.parquet")
    read = {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}
    names = ("0000000.png", "0000001.png", "0000002.png", "0000003.jpg")
    assert read == dict(zip(names, [*images[:3], buffer.getvalue()], strict=True))
    rows = [{"bytes": image, "path": name} for image, name in zip(images, ("a.png", None, None), strict=False)]
    pa.parquet.write_table(pa.table({"image": rows}), tmp_path / "named.parquet")
    found = {path.name for path in image_folder(tmp_path / "named.parquet").iterdir() if path.name[0] != "."}
    assert found == {"a.png", "0000001.png", "0000002.png"}  # the number is that of the row


@pytest.mark.parametrize("case", ["no column", "no image", "nothing of the pattern", "damaged"])
def test_archive_without_images_is_refused_and_a_plain_folder_is_itself(tmp_path, case):
    path, told = tmp_path / "a.parquet", "expected images, found none"
    if case == "no column":
        pa.parquet.write_table(pa.table({"image": ["a.png"]}), path)
        told = r"expected a column of encoded images, found \['image'\]"
    elif case == "no image":
        path = tar(tmp_path / "a.tar", {"a.txt": b"x"})
    elif case == "damaged":
        path.write_bytes(b"PAR1")
        told = "cannot be read"
    else:
        path, told = tmp_path / "x-*.tar", "expected files of this pattern, found none"
    with pytest.raises(InputError, match=told):
        image_folder(path)
    assert image_folder(tmp_path) == tmp_path and local_path(tmp_path) == tmp_path


@pytest.mark.parametrize(("kind", "suffix"), [("JPEG", ".jpg"), ("PNG", ".png"), ("WEBP", ".webp"), (None, ".png")])
def test_suffix_is_that_of_the_encoding(kind, suffix):
    buffer = io.BytesIO()
    if kind:
        Image.new("RGB", (4, 4)).save(buffer, kind)
    assert suffix_of(buffer.getvalue()) == suffix
