"""The whole of `predict` on a server or a rule: what is told, scored and left out, and how it stops."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coco_document import coco_document
from fakes import BOX, SETTINGS, TEXT, RuleEngine, answered, card_of, chat_reply, detector, make_images, served
from PIL import Image

import coord_eval
from coord_codec import InputError
from coord_detect.answers.finish import Finish
from coord_detect.detection import arguments, command
from coord_detect.detection.image_sources import find_sources
from coord_detect.detection.outcome import report_answers
from coord_detect.detection.session import answer_sources
from coord_detect.served.request import Request
from coord_detect.settings.record import Settings
from coord_detect.settings.words import did_you_mean, yaml_word
from coord_eval import CeilingSettings


class Scripted(RuleEngine):
    """Gives the answers that it is told, one for each image."""

    def answer(self, images):
        return [{"finish_reason": "stop", **self.script.pop(0)} for _ in images]


def finish(ready, folder, words, batch=1, **options):
    request = Request(folder / "model", words, folder / "out", **{"draw": False} | options)
    found = find_sources(request.sources)
    with answer_sources(ready, found, request.out, SETTINGS, batch=batch) as answers:
        report_answers(request, ready, found, answers)
    return answers


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
    ready = detector(None, "evaluation.decoding.boxes=best_iou")
    finish(ready, tmp_path, annotated(tmp_path / "data", "a"))
    told = capsys.readouterr().out
    assert "1 answer came without the probabilities of their coordinates: their boxes are as generated" in told
    assert "1 answer came without probabilities: the score of their boxes is 1" in told
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert evaluation["coco"]["AP"] > 0.99


def test_ceiling_is_that_of_targets_as_the_model_was_trained_on_them(tmp_path, monkeypatch):
    said, score = {}, coord_eval.score
    monkeypatch.setattr(coord_eval, "score", lambda *given, **named: said.update(named) or score(*given, **named))
    ready = detector(None, "data.order=random", "data.max_objects=3", "data.markers=obj")
    finish(ready, tmp_path, annotated(tmp_path / "data", "a"))
    assert said["ceiling"] == CeilingSettings(markers="obj", max_objects=3, order="random")
    assert said["answers"] == ready.reading


def test_boxes_without_a_score_of_their_own_are_told(tmp_path, capsys):
    """Boxes as written need no probabilities, but their scores do: all of them would be 1 without a word."""
    finish(detector(None, "evaluation.decoding.boxes=tokens"), tmp_path, annotated(tmp_path / "data", "a", "b"))
    assert "2 answers came without probabilities: the score of their boxes is 1" in capsys.readouterr().out
    scored = {"text": TEXT, "coord_logprobs": [0.0] * 4}
    engine = Scripted()
    engine.script = [scored]
    finish(detector(engine), tmp_path / "other", annotated(tmp_path / "one", "a"))
    assert "without probabilities" not in capsys.readouterr().out


def test_one_answer_without_probabilities_does_not_change_how_the_others_are_scored(tmp_path, capsys):
    engine = Scripted()
    right = [[side] * 7 for side in BOX]
    shifted = TEXT.replace("<|coord_250|>", "<|coord_700|>")  # the tokens say another box than the quantiles
    stated = {"text": shifted, "coord_quantiles": right, "coord_expected": BOX, "coord_spread": [0.0] * 4}
    engine.script = [stated, {"text": TEXT}]
    finish(detector(engine, "evaluation.decoding.boxes=best_iou"), tmp_path, annotated(tmp_path / "data", "a", "b"))
    assert "1 answer came without the probabilities" in capsys.readouterr().out
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert evaluation["coco"]["AP"] > 0.99
    assert any("1 of 2 answers state no coord_quantiles" in note for note in evaluation["notes"])


def test_answers_that_nothing_reads_and_dropped_pieces_are_told(tmp_path, capsys):
    engine = Scripted()
    flat = TEXT.replace("<|coord_750|>", "<|coord_250|>")
    engine.script = [{"text": "I see a way to say.\nReally."}, {"text": TEXT + flat}, {"text": ""}]
    make_images(tmp_path / "photos", a=(40, 20), b=(40, 20), c=(40, 20))
    finish(detector(engine), tmp_path, (str(tmp_path / "photos"),))
    told = capsys.readouterr().out
    assert "1 answer contains text that no format parses; the first, a.png: 'I see a way to say.\\nReally.'" in told
    assert "1 piece of an answer is no box: 1 no_area" in told
    assert "nothing to score" not in told and "'')" not in told


def test_what_decoding_changed_is_told_on_console_and_page(tmp_path, capsys):
    """12 bits in a file of 16 are a sixteenth of its scale, so that the model sees nearly one colour."""
    (tmp_path / "photos").mkdir()
    for name, largest in (("a", 4095), ("b", 65535)):
        ramp = np.linspace(0, largest, 800).astype(np.uint16).reshape(20, 40)
        Image.fromarray(ramp).save(tmp_path / "photos" / f"{name}.png")
    Image.new("RGBA", (40, 20), (0, 0, 0, 0)).save(tmp_path / "photos" / "c.png")
    answers = finish(detector(), tmp_path, (str(tmp_path / "photos"),), draw=True)
    told = capsys.readouterr().out, (tmp_path / "out" / "index.html").read_text()
    for text in told:
        assert "2 images of more than 8 bits, scaled to 8" in text
        assert "1 image of more than 8 bits that nearly becomes uniform in 8" in text
        assert "1 image with transparency, laid over white" in text
    assert [len(record.get("decoded", ())) for record in answers.records] == [2, 1, 1]


def test_scores_stand_beside_the_boxes_of_the_page(tmp_path):
    engine = Scripted()
    long = "a very long description of a cat"
    texts = [TEXT, TEXT.replace("cat", long)]
    engine.script = [{"text": text, "coord_logprobs": [-0.5] * 4} for text in texts]
    make_images(tmp_path / "photos", a=(400, 200), b=(400, 200))
    finish(detector(engine, "evaluation.decoding.boxes=tokens"), tmp_path, (str(tmp_path / "photos"),), draw=True)
    scores = [r["objects"][0]["score"] for r in map(json.loads, (tmp_path / "out/predictions.jsonl").open())]
    page = (tmp_path / "out" / "index.html").read_text()
    assert f">cat {scores[0]:.2f}</text>" in page and f">{long[:21]}… {scores[1]:.2f}</text>" in page


def test_page_shows_its_first_images_sorts_them_by_their_least_score_and_names_failures(tmp_path, monkeypatch):
    monkeypatch.setattr("coord_detect.detection.gallery.SHOWN", 2)
    engine = Scripted()
    twice = {"text": TEXT * 2, "coord_logprobs": [-0.1] * 4 + [-0.5] * 4}
    engine.script = [twice, {"text": ""}, {"text": TEXT, "coord_logprobs": [-0.1] * 4}]
    engine.script.append({"text": None, "finish_reason": "error", "error": "busy"})
    make_images(tmp_path / "photos", a=(40, 20), b=(40, 20), c=(40, 20), d=(40, 20))
    answers = finish(detector(engine), tmp_path, (str(tmp_path / "photos"),), draw=True)
    page = (tmp_path / "out" / "index.html").read_text()
    least = min(row["score"] for row in answers.records[0]["objects"])
    assert re.findall('data-values="([^"]*)"', page) == [f"0 {least:.4g} 2", "0 1 0"]
    assert "The first 2 images; all are in drawn/." in page and ">2 of 3<" in page and "busy" in page
    assert sorted(path.name for path in (tmp_path / "out" / "drawn").iterdir()) == ["a.jpg", "b.jpg", "c.jpg"]


def test_threshold_stands_on_the_page_and_in_boxes_json(tmp_path, capsys):
    make_images(tmp_path / "photos", a=(40, 20))
    finish(detector().with_threshold(min_score=0.5), tmp_path, (str(tmp_path / "photos"),), draw=True)
    line = "boxes of a score below 0.5 are left out: 0"
    assert line in capsys.readouterr().out and line in (tmp_path / "out" / "index.html").read_text()
    assert json.loads((tmp_path / "out" / "boxes.json").read_text())["threshold"]["min_score"] == 0.5


@pytest.mark.parametrize(("images", "told"), [("train", True), ("heldout", False)])
def test_model_that_was_scored_on_its_training_images_alone_is_told_on_console_and_page(tmp_path, capsys, images, told):
    make_images(tmp_path / "photos", a=(40, 20))
    (tmp_path / "model").mkdir()
    card_of(scored=images).write(tmp_path / "model")
    finish(replace(detector(), folder=tmp_path / "model"), tmp_path, (str(tmp_path / "photos"),), draw=True)
    line = "scored on its training images alone"
    assert (line in capsys.readouterr().out, line in (tmp_path / "out" / "index.html").read_text()) == (told, told)


def test_ids_are_those_of_the_annotations_or_numbers_and_the_same_in_every_file(tmp_path):
    from coord_detect.detection.written import write_export

    finish(detector(), tmp_path, annotated(tmp_path / "data", "a", "b"), batch=2)
    assert [row["image_id"] for row in json.loads((tmp_path / "out" / "coco_results.json").read_text())] == [5, 6]
    request = Request(None, (str(tmp_path / "data"),), tmp_path / "two", exports=("coco",), draw=False)
    found = find_sources(request.sources)
    report_answers(request, detector(), found, answered(detector(), found, request.out, SETTINGS))
    results = json.loads((tmp_path / "two" / "coco_results.json").read_text())
    images = json.loads((tmp_path / "two" / "coco.json").read_text())["images"]
    assert [(row["image_id"], row["file_name"]) for row in results] == [(1, "a.png"), (2, "b.png")]
    assert [(image["id"], image["file_name"]) for image in images] == [(1, "a.png"), (2, "b.png")]
    assert write_export("coco", [], tmp_path / "two").name == "coco.json"


def test_labels_are_kept_to_where_a_server_does_not(tmp_path, capsys):
    make_images(tmp_path / "photos", a=(40, 20))
    ready = replace(detector(), labels=frozenset({"dog"}))
    (record,) = finish(ready, tmp_path, (str(tmp_path / "photos"),)).records
    assert record["objects"] == [] and record["dropped"] == {"other_label": 1}
    told = capsys.readouterr().out
    assert "1 box with other labels than those of --label" in told and "no box" not in told


EXPECTED = {"precision": 0.91, "recall": 0.72, "note": "few", "classes": {"cat": {"precision": 0.5, "recall": 0.25}}}
OF_FLIP = {"boxes": 31, "merged": 17, "alone": 7, "duplicate": 5}
FACTS = [
    ({"views": ["flip", "zoom"], "fusion": {"views": {"flip": OF_FLIP}}}, "flip: 31 boxes, 17 7 5 | zoom: no image"),
    ({"views": ["flip"], "fusion": {"views": {"flip": OF_FLIP}}}, "flip: 31 17 7 5 duplicates"),
    ({"fusion": {"joined": 3, "cut": 8}}, "3 of 8 boxes that a tile's edge cuts"),
    ({"fusion": {"other_label": 2}}, "2 boxes with other labels than those of --label"),
    ({"fusion": {"names_a_side": 4}}, "4 boxes of the mirror image"),
    ({"fusion": {"uncalibrated": 6}}, "6 boxes not calibrated"),
    ({"calibration": {"rests_on": {"images": 12, "boxes": 345}}}, "calibrated on 12 345"),
    ({"threshold": {"min_score": 0.25}}, "below 0.25 0"),
    ({"threshold": {"min_score": 0.25}, "fusion": {"below_threshold": 9}}, "below 0.25 9"),
    (
        {"threshold": {"min_score": 0.25, "expected": EXPECTED}},
        "below 0.25 precision 0.910 recall 0.720 (few) | cat: 0.500 0.250",
    ),
    (
        {"threshold": {"min_score": 0.25, "expected": EXPECTED}, "labels": ["cat"]},
        "below 0.25 precision 0.910 recall 0.720, of all labels together (few) | cat: 0.500 0.250",
    ),
    (
        {"threshold": {"min_score": 0.25, "expected": EXPECTED}, "labels": ["dog"]},
        "below 0.25 0.910 0.720, of all labels together",
    ),
]


@pytest.mark.parametrize(("counted", "told"), FACTS)
def test_every_fact_of_boxes_json_is_told_in_a_line_and_no_other(tmp_path, capsys, monkeypatch, counted, told):
    make_images(tmp_path / "photos", a=(40, 20))
    finish(detector(), tmp_path, (str(tmp_path / "photos"),))
    usual = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(Finish, "changes", True)
    monkeypatch.setattr(Finish, "write_counts", lambda *_: {"fusion": {}} | counted)
    finish(detector(), tmp_path, (str(tmp_path / "photos"),), force=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ") and line not in usual]
    for line, words in zip(lines, told.split(" | "), strict=True):
        at = 0
        for word in words.split():
            assert word in line[at:], (word, line)
            at = line.index(word, at) + len(word)


def test_unknown_names_are_told_with_the_nearest_whatever_their_case(tmp_path):
    card_of(names=("can", "carton", "zip tie")).write(tmp_path)
    model = replace(detector(), folder=tmp_path, labels=frozenset({"Can", "can"}), only=frozenset({"Ziptie"}))
    assert [told.rpartition(" ")[2] for told in model.unknown_names()] == ["'can'", "tie'"]
    assert replace(model, folder=None).unknown_names() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--endpoint", "localhost:8000/v1", "--model", "m"], "--endpoint: expected a URL"),
        (["--export", "csv"], "csv"),
        (["--timeout", "3"], "--timeout is for --endpoint"),
        (["--label", "a\nb"], "expected one line"),
        (["--strict"], "--strict is about the records of annotations"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_leaves_nothing(run, tmp_path, words, told):
    make_images(tmp_path / "photos", a=(4, 4))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    model = [] if "--endpoint" in words else ["model"]
    code, error, _ = run("predict", *model, "photos", "--out", "found", *words)
    assert code == 2 and told in error and "Traceback" not in error
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("places", "told"), [(["model", "photos"], "model: no such folder"), (["model"], "expected images to answer")]
)
def test_what_is_not_there_is_named_before_the_libraries_are_loaded(run, tmp_path, places, told):
    make_images(tmp_path / "photos", a=(4, 4))
    code, error, out = run("predict", *places, "--out", "found")
    assert code == 2 and told in error and "loading" not in out + error


def test_settings_that_contradict_the_model_are_told_before_it_is_loaded(run, tmp_path):
    make_images(tmp_path / "photos", a=(4, 4))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    card_of(prompt="p").write(tmp_path / "model")
    code, error, out = run("predict", "model", "photos", "--out", "found", "data.style=json")
    assert code == 2 and "data.style" in error and "loading" not in out + error


def test_strict_is_about_records_or_about_the_names_that_are_asked_for(tmp_path):
    words = (str(make_images(tmp_path / "photos", a=(4, 4))),)
    (tmp_path / "i.jsonl").write_text('{"image": "photos/a.png", "objects": []}\n{"image": 3}\n')

    def sources(*words, **named):
        request = Request(None, words, tmp_path, strict=True, **named)
        return command._sources(request, Settings(), "box", {word: word for word in words})

    for named in ({"labels": ("cat",)}, {"only": ("cat",)}):
        assert len(sources(*words, **named).images) == 1
        with pytest.raises(InputError, match="--strict is on"):
            sources(str(tmp_path / "i.jsonl"), **named)
    with pytest.raises(InputError, match="--strict is about the records"):
        sources(*words)


@pytest.mark.parametrize(("endpoints", "ranks", "told"), [(("http://x/v1",), 1, "--endpoint"), ((), 2, "torchrun")])
def test_ray_goes_alone(monkeypatch, tmp_path, endpoints, ranks, told):
    monkeypatch.setattr(arguments, "world_size", lambda: ranks)
    with pytest.raises(InputError, match=f"--engine ray: it goes without {told}"):
        arguments.check_request(Request(None, ("a.png",), tmp_path, endpoints=endpoints, engine="ray"))
    monkeypatch.setattr(arguments, "world_size", lambda: 1)
    arguments.check_request(Request(None, ("a.png",), tmp_path, engine="ray"))


@pytest.mark.parametrize(
    ("word", "elsewhere", "told"),
    [
        ("bach_size", {}, "batch_size"),  # the nearest
        ("lr", {}, "learning_rate"),  # initials
        ("epochs", {"epochs": "training.num_train_epochs"}, "num_train_epochs"),  # of another library
        ("batch_sise", {"batch_sise": "learning_rate"}, "learning_rate"),  # what is known counts more than what is near
        ("epochs", {"epochs": "unknown"}, ""),
        ("quite other", {}, ""),
    ],
)
def test_word_that_was_meant_is_the_known_one_then_the_nearest_then_its_initials(word, elsewhere, told):
    known = ["batch_size", "learning_rate", "num_train_epochs"]
    assert did_you_mean(word, iter(known), elsewhere) == (f"; did you mean {told}?" if told else "")


@pytest.mark.parametrize(
    ("value", "is_text", "told"),
    [(True, True, '"on"'), (False, True, '"off"'), (3, True, '"3"'), (0.5, True, '"0.5"'), ("3", True, ""),
     (True, False, "yes and on"), (False, False, "no and off"), (3, False, ""), (None, True, "")],
)  # fmt: skip
def test_word_that_yaml_has_read_as_something_else_is_explained(value, is_text, told):
    hint = yaml_word(value, is_text)
    assert told in hint and bool(hint) == bool(told) and ("quotes" in hint) == (bool(told) and is_text)


@pytest.mark.slow
def test_answers_of_a_server_are_collected_and_scored_without_pytorch(tmp_path):
    annotated(tmp_path, "a")
    heavy = ("torch", "transformers", "peft", "swift")
    script = "import sys; from coord_detect.cli.main import main\ntry:\n    main()\nfinally:\n"
    script += f"    print('LOADED', [name for name in {heavy!r} if name in sys.modules])"
    with served(lambda *_: (200, chat_reply(TEXT))) as (url, _):
        words = ["predict", "i.jsonl", "--out", "found", "--endpoint", url, "--model", "m"]
        done = subprocess.run(
            [sys.executable, "-c", script, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
    assert "LOADED []" in done.stdout and "report: found/report.html" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_stop_is_at_once_while_a_server_hangs_and_the_next_call_goes_on(run, tmp_path, sent, code):
    make_images(tmp_path / "photos", a=(4, 4), b=(4, 4), c=(4, 4))
    hangs = [True]

    def reply(number, request):
        if number > 1 and hangs[0]:
            time.sleep(60)
        return 200, chat_reply(TEXT)

    with served(reply) as (url, requests):
        words = ["predict", "photos", "--out", "found", "--no-draw"]
        words += ["--endpoint", url, "--model", "m", "--concurrency", "2"]
        command = [sys.executable, "-m", "coord_detect", *words]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 90
            answers = tmp_path / "found" / "predictions.jsonl"
            while not (answers.is_file() and answers.stat().st_size and len(requests) > 2):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.1)
            process.send_signal(sent)
            _, told = process.communicate(timeout=30)  # the request itself would take a minute
        assert process.returncode == code and "Traceback" not in told
        assert ("1 image was answered into" in told) == (sent == signal.SIGINT)
        (first,) = answers.read_text().splitlines()
        hangs[0] = False
        assert not run(*words)[0]
        lines = answers.read_text().splitlines()
        assert len(lines) == 3 and first in lines


def test_annotations_without_ids_are_scored_by_name(tmp_path, capsys):
    """Also where some records have an id, which may be the place of another one."""
    for ids in ([None] * 3, [2, None, None]):
        (words,) = annotated(tmp_path / "data", "a", "b", "c")
        rows = [json.loads(line) for line in Path(words).read_text().splitlines()]
        for row, number in zip(rows, ids, strict=True):
            row.pop("image_id")
            row.update({} if number is None else {"image_id": number})
        Path(words).write_text("".join(json.dumps(row) + "\n" for row in rows))
        finish(detector(), tmp_path, (words,), batch=2, force=True)
        evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert evaluation["coco"]["AP"] > 0.99
    results = json.loads((tmp_path / "out" / "coco_results.json").read_text())
    assert [(row["image_id"], row["file_name"]) for row in results] == [(0, "a.png"), (1, "b.png"), (2, "c.png")]


def test_ids_of_categories_are_those_of_the_annotations(tmp_path):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    make_images(tmp_path / "data", a=(40, 20))
    box = {"id": 1, "image_id": 9, "category_id": 7, "bbox": [10, 10, 20, 7.5], "area": 150, "iscrowd": 0}
    image = {"id": 9, "file_name": "a.png", "width": 40, "height": 20}
    document = coco_document([box], [image]) | {"categories": [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}]}
    (tmp_path / "data" / "t.json").write_text(json.dumps(document))
    finish(detector(), tmp_path, (str(tmp_path / "data" / "t.json"),), exports=("coco",))
    for truth in (tmp_path / "data" / "t.json", tmp_path / "out" / "coco.json"):
        coco = COCO(str(truth))
        evaluation = COCOeval(coco, coco.loadRes(str(tmp_path / "out" / "coco_results.json")), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        assert evaluation.stats[0] > 0.99


def test_what_earlier_calls_made_agrees_with_the_answers_or_is_gone(tmp_path, capsys):
    finish(detector(), tmp_path, annotated(tmp_path / "data", "b", "c"), draw=True, exports=("coco", "voc"))
    assert {"report.html", "index.html", "drawn"} <= {path.name for path in (tmp_path / "out").iterdir()}
    make_images(tmp_path / "data", a=(40, 20))
    finish(detector(), tmp_path, (str(tmp_path / "data" / "*.png"),))
    left = {path.name for path in (tmp_path / "out").iterdir()} - {".lock", ".written.json"}
    assert left == {"session.json", "predictions.jsonl", "coco_results.json", "coco.json", "voc"}
    images = json.loads((tmp_path / "out" / "coco.json").read_text())["images"]
    results = json.loads((tmp_path / "out" / "coco_results.json").read_text())
    assert {i["id"]: i["file_name"] for i in images} == {r["image_id"]: r["file_name"] for r in results}
    assert len(list((tmp_path / "out" / "voc").iterdir())) == len(images) == 3


def test_annotations_without_objects_are_answered_and_not_scored(tmp_path, capsys):
    make_images(tmp_path / "data", a=(40, 20))
    (tmp_path / "data" / "i.jsonl").write_text(
        json.dumps({"image": "a.png", "width": 40, "height": 20, "image_id": 1, "objects": []})
    )
    finish(detector(), tmp_path, (str(tmp_path / "data" / "i.jsonl"),))
    told = capsys.readouterr().out
    assert "there is nothing to score" in told and "AP" not in told


@pytest.mark.parametrize(
    ("url", "key", "told"),
    [
        ("http://", "k", "expected a URL"),
        ("http://127.0.0.1:999999/v1", "k", "expected a URL"),
        ("http://local host:8000/v1", "k", "expected a URL"),
        ("http://127.0.0.1:9/v1", "k\n", "OPENAI_API_KEY: expected printable ASCII"),
        ("http://127.0.0.1:9/v1", "ключ", "OPENAI_API_KEY: expected printable ASCII"),
    ],
)
def test_server_that_cannot_be_asked_is_told_at_once(run, tmp_path, monkeypatch, url, key, told):
    make_images(tmp_path / "photos", a=(4, 4))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    code, error, _ = run("predict", "photos", "--out", "found", "--endpoint", url, "--model", "m")
    assert code == 2 and told in error and not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--timeout", "inf"], "--timeout: expected at most"),
        (["--timeout", "nan"], "'--timeout'"),
        (["evaluation.decoding.grammar=markers"], "decodes under one with --grammar"),
        (["evaluation.decoding=[{},{boxes: best_iou}]"], "answered by one decoding"),
    ],
)
def test_setting_that_does_nothing_for_a_server_is_refused(run, tmp_path, words, told):
    make_images(tmp_path / "photos", a=(4, 4))
    url = "http://127.0.0.1:9/v1"
    code, error, _ = run("predict", "photos", "--out", "found", "--endpoint", url, "--model", "m", *words)
    assert code == 2 and told in error and not (tmp_path / "found").exists()


@pytest.mark.parametrize("stated", ["card", "chat template"])
def test_server_of_a_model_that_thinks_is_asked_for_no_thoughts(run, tmp_path, stated):
    make_images(tmp_path / "photos", a=(4, 4))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    settings = {"enable_thinking": False}
    if stated == "card":
        card_of(rendered_prompt="prompt", chat_template_kwargs=settings).write(model)
    else:
        (model / "chat_template.jinja").write_text("{% if enable_thinking %}<think>{% endif %}")
    words = ["predict", model, "photos", "--out", "found", "--no-draw", "--model", "m", "evaluation.max_new_tokens=9"]
    with served(lambda number, request: (200, chat_reply(f"<think>well</think>{TEXT}"))) as (url, requests):
        code, error, told = run(*map(str, words), "--endpoint", url)
    assert code == 0, error
    assert [request["chat_template_kwargs"] for request in requests] == [settings]
    assert "1 answer began with thoughts" in told and "ignore chat_template_kwargs" in told


def test_wrong_server_leaves_a_folder_that_the_right_one_is_taken_for(run, tmp_path):
    make_images(tmp_path / "photos", a=(4, 4))
    words = ["predict", "photos", "--out", "found", "--no-draw", "--name", "m", "--endpoint"]  # --model's other name
    with served(lambda number, request: (404, {"error": {"message": "no such page"}})) as (url, _):
        code, error, _ = run(*words, url)
    assert code == 1 and f"{url} answered 404" in error and "often ends in /v1" in error
    with served(lambda number, request: (200, chat_reply(TEXT))) as (url, _):
        assert run(*words, url)[0] == 0
        assert run(*words, f"{url}/")[0] == 0
        code, error, _ = run(*words, url, "evaluation.decoding.boxes=best_iou")
    assert code == 2 and "made with decoding 'server none', now it is 'server none-best_iou'" in error
