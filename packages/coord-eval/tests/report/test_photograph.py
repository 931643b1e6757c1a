"""Images come from inside their folder only, and no file stops a report or fills the memory."""

import json
import re
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from coco_builder import coco

from coord_codec.images import ImageError
from coord_eval import AnswerSettings, score
from coord_eval.cli.main import main
from coord_eval.report.photograph import AMBIGUOUS, NOT_FOUND, OUTSIDE, link_to, photograph

Image = pytest.importorskip("PIL.Image")
SIZE = (64, 32)
ANSWER = '[{"bbox_2d": [100, 100, 500, 500], "label": "cat"}]'


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in (folder / "in.png", tmp_path / "secret.png"):
        Image.new("RGB", SIZE, (200, 30, 60)).save(path)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "near.png").symlink_to("in.png")
    return folder


def told(root, name):
    """Why an image cannot be shown; None of one that can."""
    try:
        assert photograph(root, name).size == SIZE
    except ImageError as error:
        return str(error)


def truth_of(*names):
    return coco((1, 1, [6, 3, 26, 13]), images=dict(enumerate(names, 1)), size=SIZE)


@pytest.mark.parametrize("name", ["in.png", "near.png", "sub/../in.png", "other/in.png"])
def test_photograph_finds_what_lies_in_the_folder(root, name):
    assert photograph(root, name).getpixel((0, 0)) == (200, 30, 60)


@pytest.mark.parametrize(
    "name", ["../secret.png", "{root}/../secret.png", "link.png", "..\\secret.png", "images/../../secret.png"]
)
def test_photograph_refuses_what_lies_outside(root, name):
    assert told(root, name.format(root=root)) == OUTSIDE


def test_photograph_of_a_function_is_read_where_it_says(root):
    """Whoever names files by a function vouches for them."""
    files = {"../secret.png": root.parent / "secret.png", "gone.png": root / "gone.png"}
    assert told(files.get, "../secret.png") is None
    assert told(files.get, "gone.png") == told(files.get, "in.png") == NOT_FOUND


@pytest.mark.parametrize("name", ["a" * 5000 + ".png", "\ud83d.png", "a\0b.png", "none.png", "."])
def test_photograph_of_names_that_no_file_has(root, name):
    assert told(root, name) == NOT_FOUND


def png_of(width, height):
    """A PNG of one colour: kilobytes for any number of pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pack = zlib.compressobj(1)
    row = bytes(1 + width)
    body = b"".join(pack.compress(row) for _ in range(height)) + pack.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.slow
@pytest.mark.parametrize("side", [7_000, 13_000])
def test_photograph_skips_images_of_too_many_pixels(root, side, monkeypatch):
    (root / "bomb.png").write_bytes(png_of(side, side))
    decoded = []
    monkeypatch.setattr(Image.Image, "convert", lambda *_, **__: decoded.append(1))
    tracemalloc.start()
    problem = told(root, "bomb.png")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problem == f"{side} x {side} pixels are too many to show"
    assert not decoded
    assert peak < 5_000_000


@pytest.mark.parametrize("folder", ["train2017", "images/train2017", "images", "."])
def test_photograph_finds_the_usual_folders_of_coco(tmp_path, folder):
    annotations = tmp_path / "annotations"
    annotations.mkdir()
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE).save(tmp_path / folder / "a.png")
    assert told(annotations, "a.png") is None
    assert told(annotations, "b.png") == NOT_FOUND


def test_photograph_in_two_folders_is_not_guessed(tmp_path):
    for name in ("annotations", "train2017", "val2017"):
        (tmp_path / name).mkdir()
    for name in ("train2017", "val2017"):
        Image.new("RGB", SIZE).save(tmp_path / name / "a.png")
    assert told(tmp_path / "annotations", "a.png") == AMBIGUOUS
    assert told(tmp_path / "annotations", "val2017/a.png") is None


def test_report_skips_images_outside_the_folder_and_says_so(root, tmp_path):
    names = ["../secret.png", "/secret.png", f"{root}/../secret.png", "link.png"]
    evaluation = score(truth_of(*names), [{"image_id": 1, "text": ANSWER}], answers=AnswerSettings(scale=1000))
    text = evaluation.write_report(tmp_path / "out", image_root=root).read_text()
    assert "data:image/jpeg" not in text
    assert re.search(r"4 images, the first .*outside the folder of the images", text)
    assert str(tmp_path) not in text


def test_report_of_any_image_name(root, tmp_path, capsys):
    (tmp_path / "truth.json").write_text(json.dumps(truth_of("a" * 5000 + ".png", "a\0b.png", "", "\n")))
    answer = json.dumps({"image_id": 1, "text": ANSWER.replace("cat", "\ud83d")})
    (tmp_path / "answers.jsonl").write_text(answer)
    paths = ["--ground-truth", str(tmp_path / "truth.json"), "--predictions", str(tmp_path / "answers.jsonl")]
    assert main(["score", *paths, "--out", str(tmp_path / "out"), "--images", str(root), "--export"]) == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "a" * 500 not in text
    assert "\ud83d" not in capsys.readouterr().out


def test_name_that_no_file_can_have_is_refused_by_its_field(tmp_path, capsys):
    (tmp_path / "truth.json").write_text(json.dumps(truth_of("\ud83d.png")))
    (tmp_path / "answers.jsonl").write_text("")
    paths = ["--ground-truth", str(tmp_path / "truth.json"), "--predictions", str(tmp_path / "answers.jsonl")]
    assert main(["score", *paths, "--out", str(tmp_path / "out")]) == 2
    assert "images[0]: file_name" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(3000, 2), (2, 3000)])
def test_report_draws_an_image_of_a_pixel_or_two_of_width(root, tmp_path, size):
    Image.new("RGB", size).save(root / "thin.png")
    truth = truth_of("thin.png")
    truth["images"][0] |= {"width": size[0], "height": size[1]}
    truth["annotations"][0]["bbox"] = [0, 0, 1, 1]
    text = score(truth, []).write_report(tmp_path / "out", image_root=root).read_text()
    assert text.count("data:image/jpeg") == 1


def test_links_to_images_are_relative_and_lead_where_images_may_be_read(root, tmp_path):
    page = tmp_path / "report"
    assert link_to(root, "in.png", page) == "../photos/in.png"
    assert link_to(lambda name: root / name, "in.png", root) == "in.png"
    (root / "javascript:run").write_bytes((root / "in.png").read_bytes())
    assert link_to(root, "javascript:run", root) == "javascript%3Arun"
    for name in ("../secret.png", "link.png", str(tmp_path / "secret.png"), "gone.png", "", "a\0b"):
        assert link_to(root, name, page) == ""
    assert link_to(None, "in.png", page) == ""
    assert link_to(root, "in.png", Path("/elsewhere/report")) == ""  # only an address from the root would lead there
