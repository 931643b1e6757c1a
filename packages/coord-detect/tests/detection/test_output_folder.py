"""Folders of answers: whose folder it is, other settings and images, files of a user, drawn images, `--force`."""

import re
from pathlib import Path

import pytest
from fakes import SETTINGS, BusyEngine, RuleEngine, answer, answered, detector, lines, make_images
from PIL import Image

from coord_codec import InputError
from coord_detect.detection.gallery import draw_answers
from coord_detect.detection.image_sources import find_sources
from coord_detect.detection.session import answer_sources, remove_made
from coord_detect.detection.written import write_export


def test_other_settings_are_refused_and_force_starts_anew(tmp_path, sources):
    answer(tmp_path / "out", sources)
    with pytest.raises(InputError, match=r"prompt 'p', now it is 'q'.*--force"):
        answered(detector(), sources, tmp_path / "out", SETTINGS | {"prompt": "q"})
    changed = SETTINGS | {"prompt": "q"}
    assert answered(detector(), sources, tmp_path / "out", changed, force=True).new == 4


@pytest.mark.parametrize(("before", "now"), [(None, "q"), ([], ["cat"]), (0.0, 0.5), ("q", None), ([1, None], [1, 2])])
def test_setting_of_nothing_differs_from_one_of_something(tmp_path, sources, before, now):
    """Also where one image has no answer; a setting that the session of an older version lacks is no difference."""

    class Partly(RuleEngine):
        def answer(self, images):
            found = super().answer(images)
            failed = {"text": None, "finish_reason": "error", "error": "busy"}
            return [failed if image.width == 8 else row for image, row in zip(images, found, strict=True)]

    out, settings = tmp_path / "out", SETTINGS | {"wanted": before}
    assert len(answered(detector(Partly()), sources, out, settings).failed) == 1
    with pytest.raises(InputError, match=f"made with wanted {re.escape(repr(before))}, now it is"):
        answered(detector(), sources, out, SETTINGS | {"wanted": now})
    assert answered(detector(), sources, out, settings | {"new": 1}).new == 1


def test_force_leaves_nothing_of_ranks_that_were_stopped_nor_of_earlier_images(tmp_path, sources):
    answer(tmp_path / "out", sources)
    answer(tmp_path / "out", find_sources([str(tmp_path / "photos" / "a.png")]))
    (tmp_path / "out" / "predictions.jsonl").rename(tmp_path / "out" / "predictions.jsonl.1")
    assert answer(tmp_path / "out", sources, force=True).new == 4
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".lock", "predictions.jsonl", "session.json"]


def test_folder_of_something_else_is_refused_and_untouched(tmp_path, sources):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    for force in (False, True):
        with pytest.raises(InputError, match="holds something else"):
            answer(tmp_path / "out", sources, force=force)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_answers_of_images_that_a_call_does_not_name_are_kept_and_taken_up_again(tmp_path, sources, capsys):
    answer(tmp_path / "out", sources)
    few = find_sources([str(tmp_path / "photos" / "a.png"), str(tmp_path / "photos" / "c.png")])
    assert [record["image"] for record in answer(tmp_path / "out", few).records] == ["a.png", "c.png"]
    assert [record["image"] for record in lines(tmp_path / "out")] == ["a.png", "c.png"]
    assert "2 answers of images that this call does not name: see earlier.jsonl" in capsys.readouterr().out
    engine = RuleEngine()
    assert answer(tmp_path / "out", sources, engine).new == 0 and not engine.batches
    assert len(lines(tmp_path / "out")) == 4 and not (tmp_path / "out" / "earlier.jsonl").exists()


def test_other_images_of_the_same_names_are_refused_and_nothing_is_lost(tmp_path, sources):
    answer(tmp_path / "out", sources)
    before = lines(tmp_path / "out")
    others = find_sources([str(make_images(tmp_path / "other", a=(50, 20)))])
    with pytest.raises(InputError, match=r"other images of the same names, .*photos.a\.png first"):
        answer(tmp_path / "out", others)
    assert lines(tmp_path / "out") == before
    (tmp_path / "photos").rename(tmp_path / "moved")  # the same images elsewhere are the same
    assert answer(tmp_path / "out", find_sources([str(tmp_path / "moved")])).new == 0


def test_files_of_the_user_beside_the_answers_are_left_alone(tmp_path, sources):
    answer(tmp_path / "out", sources)
    for name in ("predictions.jsonl.bak", "predictions.jsonl.old", "notes.txt"):
        (tmp_path / "out" / name).write_text("mine")
    answer(tmp_path / "out", sources)
    answer(tmp_path / "out", sources, force=True)
    assert {
        path.read_text() for path in (tmp_path / "out").iterdir() if path.name[-4:] in (".bak", ".old", ".txt")
    } == {"mine"}


def test_force_removes_what_the_earlier_call_made(tmp_path, sources):
    draw_answers(answer(tmp_path / "out", sources), sources)
    write_export("voc", lines(tmp_path / "out"), tmp_path / "out")
    few = find_sources([str(tmp_path / "photos" / "a.png")])
    draw_answers(answer(tmp_path / "out", few), few)
    assert [path.name for path in (tmp_path / "out" / "drawn").iterdir()] == ["a.jpg"]
    answer(tmp_path / "out", few, force=True)
    left = {path.name for path in (tmp_path / "out").iterdir()} - {".lock"}
    assert left == {"session.json", "predictions.jsonl"}


def test_change_of_the_last_byte_of_a_drawn_image_is_an_edit(tmp_path, sources):
    draw_answers(answer(tmp_path / "out", sources), sources)
    path = tmp_path / "out" / "drawn" / "a.jpg"
    edited = path.read_bytes()[:-1] + b"x"
    path.write_bytes(edited)
    remove_made(tmp_path / "out", ["drawn"])
    assert (tmp_path / "out" / "drawn.changed-1" / "a.jpg").read_bytes() == edited


@pytest.mark.parametrize("again", ["--no-draw", "draw", "--force"])
def test_files_of_the_user_beside_drawn_images_stay(tmp_path, sources, again):
    """The folder is moved aside with all that a user has put there or edited."""
    draw_answers(answer(tmp_path / "out", sources), sources)
    drawn = tmp_path / "out" / "drawn"
    mine = {drawn / "mine.jpg": "my image", drawn / "notes" / "b.txt": "my notes", drawn / "a.jpg": "my edit"}
    (drawn / "notes").mkdir()
    for path, text in mine.items():
        path.write_text(text)
    few = find_sources([str(tmp_path / "photos" / "a.png")])
    found = answer(tmp_path / "out", few, force=again == "--force")
    if again == "draw":
        draw_answers(found, few)
        assert Image.open(drawn / "a.jpg").size
    else:
        remove_made(tmp_path / "out", ["drawn", "index.html"])
    aside = drawn.with_name("drawn.changed-1")
    assert {aside / path.relative_to(drawn): text for path, text in mine.items()} == {
        aside / path.relative_to(drawn): (aside / path.relative_to(drawn)).read_text() for path in mine
    }
    assert drawn.exists() == (again == "draw")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda out: out.write_text("x"), "is a file; name a folder"),
        (lambda out: (out.mkdir(), (out / "session.json").write_text("[]")), "holds something else"),
        (lambda out: (out.mkdir(), (out / "session.json").write_text('{"my": "tool"}')), "holds something else"),
    ],
)
def test_place_that_cannot_be_is_one_line(tmp_path, sources, make, told):
    make(tmp_path / "out")
    with pytest.raises(InputError, match=told):
        answer(tmp_path / "out", sources)


def test_folder_that_cannot_be_made_is_told_and_the_systems_own_files_are_nothing(tmp_path, sources):
    with pytest.raises(InputError, match="cannot be written"):
        answer(Path("/proc/nowhere/out"), sources)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".DS_Store").write_text("x")
    assert answer(tmp_path / "out", sources).new == 4


def test_no_other_call_works_in_the_folder_until_the_block_ends(tmp_path, sources):
    with (
        answer_sources(detector(), sources, tmp_path / "out", SETTINGS, batch=2),
        pytest.raises(InputError, match="another process is answering"),
    ):
        answer(tmp_path / "out", sources, force=True)
    assert answer(tmp_path / "out", sources).new == 0


def test_answers_of_folders_in_turn_are_all_kept(tmp_path):
    first = find_sources([str(make_images(tmp_path / "one", x=(40, 20)))])
    second = find_sources([str(make_images(tmp_path / "two", y=(40, 20)))])
    answer(tmp_path / "out", first)
    answer(tmp_path / "out", second)
    make_images(tmp_path / "two", x=(30, 20))
    with pytest.raises(InputError, match="other images of the same names"):
        answer(tmp_path / "out", find_sources([str(tmp_path / "two")]))
    assert answer(tmp_path / "out", first).new == 0


def test_session_without_an_answer_binds_to_nothing(tmp_path, sources):
    answer(tmp_path / "out", sources, BusyEngine())
    assert answered(detector(), sources, tmp_path / "out", SETTINGS | {"prompt": "q"}).new == 4
    with pytest.raises(InputError, match="prompt 'q'"):
        answer(tmp_path / "out", sources)
