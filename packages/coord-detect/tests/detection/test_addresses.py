"""`predict` of images and annotations at an address: the answers are those to the same files here."""

import io
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest
from fakes import BOX, TEXT, card_of, chat_reply, make_images, served

from coord_detect.detection.command import answer_request
from coord_detect.served.request import Request
from coord_detect.settings.record import Settings

fsspec = pytest.importorskip("fsspec", reason="needs the extra coord-data[remote]")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with two images and their annotations."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "files"
    make_images(folder / "images", a=(40, 20), b=(40, 20))
    objects = [{"desc": "cat", "bbox": BOX}]
    rows = [{"image": f"{name}.png", "width": 40, "height": 20, "objects": objects} for name in "ab"]
    (folder / "i.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def memory(files):
    system = fsspec.filesystem("memory")
    for path in filter(lambda path: path.is_file(), files.rglob("*")):
        system.pipe(f"/bucket/{path.relative_to(files)}", path.read_bytes())
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


@pytest.fixture
def web(files):
    if find_spec("aiohttp") is None:
        pytest.skip("needs the extra coord-data[remote]")
    handler = partial(SimpleHTTPRequestHandler, directory=str(files))
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def predicted(out, *sources, images=None, model=None):
    """Answer the sources by a served model; returns the records without what says where a file lies."""
    with served(lambda *_: (200, chat_reply(TEXT))) as (url, _):
        request = Request(model, sources, out, images=images, endpoints=(url,), served_name="m", draw=False)
        records = answer_request(request, Settings()).records
    return [{key: value for key, value in record.items() if key != "file"} for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "web"])
def test_answers_are_those_to_the_same_files_here(kind, request, files, tmp_path):
    address = request.getfixturevalue(kind)
    far = predicted(tmp_path / "far", f"{address}/images")
    assert far == predicted(tmp_path / "near", str(files / "images")) and len(far) == 2
    scored = predicted(tmp_path / "scored", f"{address}/i.jsonl", images=f"{address}/images")
    assert [record["image"] for record in scored] == ["a.png", "b.png"]
    evaluations = json.loads((tmp_path / "scored" / "evaluation.json").read_text())
    assert evaluations["coco"]["AP"] > 0.99


def test_archive_of_images_is_answered(files, tmp_path):
    import tarfile

    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        content = (files / "images" / "a.png").read_bytes()
        member = tarfile.TarInfo("deep/a.png")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    assert [record["image"] for record in predicted(tmp_path / "out", str(tmp_path / "set.tar"))] == ["deep/a.png"]


def test_software_that_made_the_pixels_of_training_is_told_of_a_server(files, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    card_of(versions={"pillow": "9.1.2", "peft": "0.1"}, image_processor="Fast").write(folder)
    predicted(tmp_path / "out", str(files / "images"), model=folder)
    told = capsys.readouterr().out
    assert "trained with pillow 9.1.2, image processor Fast; a server does not tell" in told
