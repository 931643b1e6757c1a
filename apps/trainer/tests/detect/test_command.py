"""The whole of `predict` on a server or a rule: what is told, scored and left out, and how it stops."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import BOX, TEXT, RuleEngine, chat_reply, detector, make_images, served

from coord_trainer.detect import command
from coord_trainer.detect.session import answer_sources
from coord_trainer.detect.sources import find_sources

TRAINER = Path(__file__).parents[2]


class Scripted(RuleEngine):
    """Gives the answers that it is told, one for each image."""

    def answer(self, images):
        return [{"finish_reason": "stop", **self.script.pop(0)} for _ in images]


def finish(ready, folder, words, batch=1):
    request = command.Request(folder / "model", words, folder / "out", draw=False)
    found = find_sources(request.sources)
    answered = answer_sources(ready, found, request.out, {"model": "rule"}, batch=batch)
    command._finish(request, ready, found, answered)
    return answered


def annotated(folder, *names):
    make_images(folder, **dict.fromkeys(names, (40, 20)))
    objects = [{"desc": "cat", "bbox": BOX}]
    rows = [
        {"image": f"{name}.png", "width": 40, "height": 20, "image_id": number, "objects": objects}
        for number, name in enumerate(names, start=5)
    ]
    (folder / "i.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return (str(folder / "i.jsonl"),)


def test_answers_without_probabilities_have_the_boxes_that_they_say_and_this_is_told(tmp_path, capsys):
    """A reading by quantiles, and an engine that states none, as a server without log-probabilities does."""
    ready = detector(None, "evaluation.readings=[best-iou]")
    finish(ready, tmp_path, annotated(tmp_path / "data", "a"))
    told = capsys.readouterr().out
    assert "1 answers came without the probabilities of their coordinates: their boxes are as written" in told
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert evaluation["coco"]["AP"] > 0.99


def test_one_answer_without_probabilities_does_not_change_how_the_others_are_scored(tmp_path, capsys):
    engine = Scripted()
    right = [[side] * 7 for side in BOX]
    shifted = TEXT.replace("<|coord_250|>", "<|coord_700|>")  # the tokens say another box than the quantiles
    stated = {"text": shifted, "coord_quantiles": right, "coord_expected": BOX, "coord_spread": [0.0] * 4}
    engine.script = [stated, {"text": TEXT}]
    finish(detector(engine, "evaluation.readings=[best-iou]"), tmp_path, annotated(tmp_path / "data", "a", "b"))
    assert "1 answers came without the probabilities" in capsys.readouterr().out
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert evaluation["coco"]["AP"] > 0.99
    assert any("1 of 2 answers state no coord_quantiles" in note for note in evaluation["notes"])


def test_answers_that_nothing_reads_and_dropped_pieces_are_told(tmp_path, capsys):
    engine = Scripted()
    flat = TEXT.replace("<|coord_750|>", "<|coord_250|>")
    engine.script = [{"text": "I see no way to say.\nReally."}, {"text": TEXT + flat}, {"text": ""}]
    make_images(tmp_path / "photos", a=(40, 20), b=(40, 20), c=(40, 20))
    finish(detector(engine), tmp_path, (str(tmp_path / "photos"),))
    told = capsys.readouterr().out
    assert "1 answers hold text that nothing reads; the first, a.png: 'I see no way to say.\\nReally.'" in told
    assert "1 pieces of answers are no box: 1 no_area" in told


def test_ids_are_those_of_the_annotations_or_numbers_and_the_same_in_every_file(tmp_path):
    from coord_trainer.detect.exports import write_export

    finish(detector(), tmp_path, annotated(tmp_path / "data", "a", "b"), batch=2)
    assert [row["image_id"] for row in json.loads((tmp_path / "out" / "coco_results.json").read_text())] == [5, 6]
    request = command.Request(None, (str(tmp_path / "data"),), tmp_path / "two", exports=("coco",), draw=False)
    found = find_sources(request.sources)
    command._finish(request, detector(), found, answer_sources(detector(), found, request.out, {}, batch=2))
    results = json.loads((tmp_path / "two" / "coco_results.json").read_text())
    images = json.loads((tmp_path / "two" / "coco.json").read_text())["images"]
    assert [(row["image_id"], row["file_name"]) for row in results] == [(1, "a.png"), (2, "b.png")]
    assert [(image["id"], image["file_name"]) for image in images] == [(1, "a.png"), (2, "b.png")]
    assert write_export("coco", [], tmp_path / "two").name == "coco.json"


def test_labels_are_kept_to_where_a_server_does_not(tmp_path, capsys):
    from dataclasses import replace

    make_images(tmp_path / "photos", a=(40, 20))
    ready = replace(detector(), labels=frozenset({"dog"}))
    (record,) = finish(ready, tmp_path, (str(tmp_path / "photos"),)).records
    assert record["objects"] == [] and record["dropped"] == {"other_label": 1}
    assert "1 boxes had other labels than those of --label" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--endpoint", "localhost:8000/v1", "--name", "m"], "--endpoint: expected a URL"),
        (["--export", "csv"], "csv"),
        (["--timeout", "3"], "--timeout is for --endpoint"),
        (["--label", "a\nb"], "expected one line"),
        (["--label", ""], "expected a description"),
        (["--label", "<|coord_3|>"], "control token"),
        (["--strict"], "--strict is about the records of annotations"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_leaves_nothing(run, tmp_path, words, told):
    make_images(tmp_path / "photos", a=(4, 4))
    model = [] if "--endpoint" in words else ["model"]
    code, error, _ = run("predict", *model, "photos", "--out", "found", *words)
    assert code == 2 and told in error and "Traceback" not in error
    assert not (tmp_path / "found").exists()


def test_option_without_images_is_refused(run, tmp_path):
    code, error, _ = run("predict", "model", "--out", "found", "--force")
    assert code == 2 and "--force: no images are named" in error


def test_interrupt_ends_at_once_while_a_server_hangs_and_the_next_call_goes_on(tmp_path):
    make_images(tmp_path / "photos", a=(4, 4), b=(4, 4), c=(4, 4))
    hangs = [True]

    def reply(number, request):
        if number > 1 and hangs[0]:
            time.sleep(60)
        return 200, chat_reply(TEXT)

    with served(reply) as (url, requests):
        words = [sys.executable, str(TRAINER), "predict", "photos", "--out", "found", "--no-draw"]
        words += ["--endpoint", url, "--name", "m", "--concurrency", "2"]
        with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 90
            answers = tmp_path / "found" / "predictions.jsonl"
            while not (answers.is_file() and answers.stat().st_size and len(requests) > 2):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=30)  # the request itself would take a minute
        assert process.returncode == 130 and "1 images were answered into" in told and "Traceback" not in told
        hangs[0] = False
        subprocess.run(words, cwd=tmp_path, check=True, env=os.environ, timeout=120)
        assert len(answers.read_text().splitlines()) == 3
