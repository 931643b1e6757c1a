"""Answers into a folder: resumed, torn, refused, failed, over several processes, scored."""

import json

import pytest
from fakes import BOX, TEXT, RuleEngine, detector, make_images

from coord_codec import InputError
from coord_trainer.detect import session
from coord_trainer.detect.session import answer_sources
from coord_trainer.detect.sources import find_sources

SETTINGS = {"model": "rule", "prompt": "p"}


def answer(folder, sources, engine=None, **options):
    return answer_sources(detector(engine), sources, folder, SETTINGS, batch=2, **options)


def lines(folder):
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


@pytest.fixture
def sources(tmp_path):
    return find_sources([str(make_images(tmp_path / "photos", a=(40, 20), b=(40, 20), c=(8, 8), d=(41, 20)))])


def test_every_image_is_answered_in_pixels_and_alike_sizes_share_a_batch(tmp_path, sources):
    engine = RuleEngine()
    found = answer(tmp_path / "out", sources, engine)
    assert [record["image"] for record in lines(tmp_path / "out")] == ["a.png", "b.png", "c.png", "d.png"]
    first = lines(tmp_path / "out")[0]
    assert first["objects"] == [{"desc": "cat", "bbox_xyxy": [10.0, 10.0, 30.0, 17.5], "score": 1.0}]
    assert (first["text"], first["width"], first["height"]) == (TEXT, 40, 20)
    assert found.new == 4 and not found.failed
    assert [(8, 8)] in engine.batches and all(len(batch) <= 2 for batch in engine.batches)


def test_second_call_goes_on_where_the_first_was_interrupted(tmp_path, sources):
    with pytest.raises(KeyboardInterrupt):
        answer(tmp_path / "out", sources, RuleEngine(stop_after=1))
    before = lines(tmp_path / "out")
    assert 0 < len(before) < 4
    engine = RuleEngine()
    found = answer(tmp_path / "out", sources, engine)
    assert sum(map(len, engine.batches)) == found.new == 4 - len(before)
    assert len(lines(tmp_path / "out")) == 4
    again = RuleEngine()
    assert answer(tmp_path / "out", sources, again).new == 0 and again.batches == []


def test_torn_last_line_is_repaired_and_its_image_answered_again(tmp_path, sources, capsys):
    answer(tmp_path / "out", sources)
    path = tmp_path / "out" / "predictions.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    assert answer(tmp_path / "out", sources).new == 1
    assert "1 answers were cut off" in capsys.readouterr().out
    assert len(lines(tmp_path / "out")) == 4


def test_bad_image_is_one_failed_record_that_is_tried_again(tmp_path, sources):
    make_images(tmp_path / "photos")
    (tmp_path / "photos" / "e.png").write_text("no image")
    sources = find_sources([str(tmp_path / "photos")])
    found = answer(tmp_path / "out", sources)
    (failed,) = found.failed
    assert (failed["image"], failed["finish_reason"]) == ("e.png", "error") and "cannot be decoded" in failed["error"]
    make_images(tmp_path / "photos", e=(4, 4))
    assert answer(tmp_path / "out", sources).new == 1
    assert len(lines(tmp_path / "out")) == 5


def test_other_settings_are_refused_and_force_starts_anew(tmp_path, sources):
    answer(tmp_path / "out", sources)
    with pytest.raises(InputError, match=r"prompt 'p', now it is 'q'.*--force"):
        answer_sources(detector(), sources, tmp_path / "out", SETTINGS | {"prompt": "q"}, batch=2)
    changed = SETTINGS | {"prompt": "q"}
    assert answer_sources(detector(), sources, tmp_path / "out", changed, batch=2, force=True).new == 4


def test_folder_of_something_else_is_refused_and_untouched(tmp_path, sources):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    for force in (False, True):
        with pytest.raises(InputError, match="holds something else"):
            answer(tmp_path / "out", sources, force=force)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_answers_of_several_processes_are_put_together(tmp_path, sources, monkeypatch):
    monkeypatch.setattr(session, "world_size", lambda: 2)
    monkeypatch.setattr(session, "all_ranks_done", lambda block: None)
    for number in (1, 0):  # the second one has ended when the first one collects
        monkeypatch.setattr(session, "rank", lambda number=number: number)
        monkeypatch.setattr(session, "is_first", lambda number=number: number == 0)
        if number:
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "session.json").write_text(json.dumps(SETTINGS))
        answer(tmp_path / "out", sources)
    assert [record["image"] for record in lines(tmp_path / "out")] == ["a.png", "b.png", "c.png", "d.png"]
    assert sorted(path.name for path in (tmp_path / "out").glob("predictions*")) == ["predictions.jsonl"]


def test_box_is_that_of_the_upright_image(tmp_path):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "photos" / "turned.jpg", exif=exif)
    answer(tmp_path / "out", find_sources([str(tmp_path / "photos")]))
    (record,) = lines(tmp_path / "out")
    width, height = 20, 40
    expected = [BOX[0] * width, BOX[1] * height, BOX[2] * width, BOX[3] * height]
    assert record["objects"][0]["bbox_xyxy"] == pytest.approx(expected)


def test_answers_without_probabilities_have_the_boxes_that_they_say_and_this_is_told(tmp_path, capsys):
    """A reading by quantiles, and an engine that states none, as a server without log-probabilities does."""
    from coord_trainer.detect import command

    make_images(tmp_path / "data", a=(40, 20))
    objects = [{"desc": "cat", "bbox": BOX}]
    record = {"image": "a.png", "width": 40, "height": 20, "image_id": 1, "objects": objects}
    (tmp_path / "data" / "a.jsonl").write_text(json.dumps(record))
    ready = detector(None, "evaluation.readings=[best-iou]")
    request = command.Request(tmp_path / "model", (str(tmp_path / "data" / "a.jsonl"),), tmp_path / "out", draw=False)
    found = find_sources(request.sources)
    command._finish(request, ready, found, answer_sources(ready, found, request.out, SETTINGS, batch=2))
    told = capsys.readouterr().out
    assert "1 answers came without the probabilities of their coordinates: their boxes are as written" in told
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert evaluation["coco"]["AP"] > 0.99
