"""Answers into a folder: resumed, torn, failed, over several processes, by concurrent requests."""

import json
import os
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest
from fakes import SETTINGS, TEXT, BusyEngine, RuleEngine, answer, detector, lines, make_images
from PIL import Image

from coord_codec.images import DEEP
from coord_detect.answers import resumable_file
from coord_detect.answers.records import NEARLY_UNIFORM, ImageSource
from coord_detect.detection import session
from coord_detect.detection.image_sources import find_sources


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
    with pytest.raises(KeyboardInterrupt, match="the same command resumes"):
        answer(tmp_path / "out", sources, RuleEngine(stop_after=1))
    before = lines(tmp_path / "out")
    assert 0 < len(before) < 4
    engine = RuleEngine()
    found = answer(tmp_path / "out", sources, engine)
    assert sum(map(len, engine.batches)) == found.new == 4 - len(before)
    assert len(lines(tmp_path / "out")) == 4
    again = RuleEngine()
    assert answer(tmp_path / "out", sources, again).new == 0 and again.batches == []


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


def test_answers_of_several_processes_are_put_together(tmp_path, sources, monkeypatch):
    monkeypatch.setattr(resumable_file, "world_size", lambda: 2)
    monkeypatch.setattr(resumable_file, "all_ranks_done", lambda block: None)
    for number in (1, 0):  # the second one has ended when the first one collects
        monkeypatch.setattr(resumable_file, "rank", lambda number=number: number)
        for module in (resumable_file, session):
            monkeypatch.setattr(module, "is_first", lambda number=number: number == 0)
        if number:
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "session.json").write_text(json.dumps(SETTINGS))
        answer(tmp_path / "out", sources)
    assert [record["image"] for record in lines(tmp_path / "out")] == ["a.png", "b.png", "c.png", "d.png"]
    assert sorted(path.name for path in (tmp_path / "out").glob("predictions*")) == ["predictions.jsonl"]


def test_file_that_is_another_one_now_is_answered_again(tmp_path, sources, capsys):
    answer(tmp_path / "out", sources)
    make_images(tmp_path / "photos", b=(30, 20))
    engine = RuleEngine()
    assert answer(tmp_path / "out", find_sources([str(tmp_path / "photos")]), engine).new == 1
    assert engine.batches == [[(30, 20)]] and lines(tmp_path / "out")[1]["width"] == 30
    assert "1 image file has changed since" in capsys.readouterr().out


def test_file_of_one_size_that_was_written_again_is_answered_again_and_a_moved_one_is_not(tmp_path, sources):
    answer(tmp_path / "out", sources)
    path = tmp_path / "photos" / "b.png"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    engine = RuleEngine()
    assert answer(tmp_path / "out", find_sources([str(tmp_path / "photos")]), engine).new == 1
    assert engine.batches == [[(40, 20)]]
    (tmp_path / "photos").rename(tmp_path / "moved")
    assert answer(tmp_path / "out", find_sources([str(tmp_path / "moved")])).new == 0


@pytest.mark.parametrize(("levels", "is_told"), [(31, True), (32, False)])
def test_deep_image_of_few_levels_is_told(tmp_path, levels, is_told):
    pixels = np.array([[0, levels * 257]] * 2, np.uint16)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    source = ImageSource(tmp_path / "a.png", "a.png", 1)
    assert (NEARLY_UNIFORM in source.notes(source.open())) is is_told and DEEP in source.notes(source.open())
    Image.new("L", (4, 4)).save(tmp_path / "a.png")  # of 8 bits, as it is
    assert ImageSource(tmp_path / "a.png", "a.png", 1).notes(Image.new("RGB", (4, 4))) == ()


def test_image_of_two_ids_is_answered_once_and_recorded_twice(tmp_path):
    make_images(tmp_path, a=(40, 20))
    rows = [{"image": "a.png", "width": 40, "height": 20, "image_id": n, "objects": []} for n in (7, 8)]
    (tmp_path / "i.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = RuleEngine()
    found = answer(tmp_path / "out", find_sources([str(tmp_path / "i.jsonl")]), engine)
    assert engine.batches == [[(40, 20)]] and [record["image_id"] for record in found.records] == [7, 8]


def test_image_that_the_processor_refuses_fails_alone(tmp_path, sources):
    class Picky(RuleEngine):
        def answer(self, images):
            if any(image.width == 41 for image in images):
                raise ValueError("absolute aspect ratio must be smaller than 200")
            if len(images) > 1:
                raise MemoryError("CUDA out of memory")
            return super().answer(images)

    found = answer(tmp_path / "out", sources, Picky())
    (failed,) = found.failed
    assert (failed["image"], found.new) == ("d.png", 3) and "aspect ratio" in failed["error"]


def test_names_and_texts_that_are_no_text_are_kept(tmp_path):
    class Odd(RuleEngine):
        def answer(self, images):
            return [{"text": "caf\ud83d", "finish_reason": "stop"} for _ in images]

    name = b"caf\xe9.png".decode("utf-8", "surrogateescape")  # as a file system of Latin-1 has it
    make_images(tmp_path / "photos", a=(4, 4))
    try:
        (tmp_path / "photos" / "a.png").rename(tmp_path / "photos" / name)
    except (OSError, UnicodeError):
        pytest.skip("this file system takes names in Unicode alone")
    found = find_sources([str(tmp_path / "photos")])
    assert answer(tmp_path / "out", found, Odd()).new == 1
    assert (lines(tmp_path / "out")[0]["image"], lines(tmp_path / "out")[0]["text"]) == (name, "caf\ud83d")
    assert answer(tmp_path / "out", found, Odd()).new == 0


def test_several_requests_are_out_at_a_time_whatever_sizes_images_have(tmp_path, sources):
    """Each waits for the others: it ends only if all are asked together."""
    together = Barrier(4, timeout=20)

    class Server(RuleEngine):
        def answer(self, images):
            together.wait()
            return super().answer(images)

    (tmp_path / "photos" / "e.png").write_text("no image")
    found = answer(tmp_path / "out", find_sources([str(tmp_path / "photos")]), Server(concurrency=4))
    assert found.new == 4 and [record["image"] for record in found.failed] == ["e.png"]
    assert [record["image"] for record in lines(tmp_path / "out")] == [f"{n}.png" for n in "abcde"]


def test_what_goes_wrong_in_one_request_for_all_is_raised(tmp_path, sources):
    with pytest.raises(KeyboardInterrupt):
        answer(tmp_path / "out", sources, RuleEngine(stop_after=2, concurrency=2))
    assert answer(tmp_path / "out", sources).new >= 2  # the folder is free again, and goes on


def test_images_that_are_out_of_reach_keep_their_answers(tmp_path, sources, capsys):
    answer(tmp_path / "out", sources)
    before = lines(tmp_path / "out")
    (tmp_path / "photos").rename(tmp_path / "unmounted")
    assert answer(tmp_path / "out", sources).new == 0 and lines(tmp_path / "out") == before
    assert "4 image files cannot be found now; the answers are kept" in capsys.readouterr().out


def test_failure_takes_no_answers_place_unless_the_file_is_another_one(tmp_path, sources):
    answer(tmp_path / "out", sources)
    make_images(tmp_path / "photos", b=(30, 20))
    (tmp_path / "photos" / "c.png").write_text("no image any more")

    found = answer(tmp_path / "out", sources, BusyEngine())
    assert [record["image"] for record in found.failed] == ["b.png", "c.png"]
    assert answer(tmp_path / "out", sources).new == 1  # c.png is none
    (tmp_path / "out" / "predictions.jsonl").open("a").write(
        json.dumps({"image": "a.png", "image_id": "a.png", "finish_reason": "error", "error": "a late process"}) + "\n"
    )
    assert len(answer(tmp_path / "out", sources).failed) == 1


def test_parts_of_a_stopped_torchrun_are_older_than_what_comes_after(tmp_path, sources):
    """One failed and one has been replaced since; one process goes on, and its answers count."""
    answer(tmp_path / "out", sources)
    records = lines(tmp_path / "out")
    failed = {"image_id": "d.png", "image": "d.png", "finish_reason": "error", "error": "gone"}
    for number, part in enumerate((records[:2], [records[2], failed])):
        text = "".join(json.dumps(record) + "\n" for record in part)
        (tmp_path / "out" / f"predictions.jsonl.{number}").write_text(text)
    (tmp_path / "out" / "predictions.jsonl").unlink()
    make_images(tmp_path / "photos", b=(30, 20))
    found = answer(tmp_path / "out", find_sources([str(tmp_path / "photos")]))
    assert not found.failed and found.new == 2 and lines(tmp_path / "out")[1]["width"] == 30
    assert answer(tmp_path / "out", sources).new == 0


@pytest.mark.parametrize("line", ['{"image_id": "a.png", "te', "[]", '{"image": ["x"]}', '{"finish_reason": "stop"}'])
def test_line_that_is_no_record_is_cut_off_and_its_image_answered_again(tmp_path, sources, line, capsys):
    answer(tmp_path / "out", sources)
    kept = [json.dumps(record) for record in lines(tmp_path / "out")[1:]]
    (tmp_path / "out" / "predictions.jsonl").write_text("\n".join([line, *kept]) + "\n")
    assert answer(tmp_path / "out", sources).new == 1 and len(lines(tmp_path / "out")) == 4
    assert "1 answer was cut off" in capsys.readouterr().out


def test_count_of_an_interrupt_is_that_of_the_answers(tmp_path, sources, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    (tmp_path / "photos" / "0.png").write_text("no image")
    with pytest.raises(KeyboardInterrupt, match="interrupted: 3 images were answered"):
        answer(tmp_path / "out", find_sources([str(tmp_path / "photos")]), RuleEngine(stop_after=2))


@pytest.mark.parametrize(
    "setting",
    [
        "model.dtype=bfloat16",
        "data.prompt=Find all.",
        "data.style=json",
        "data.markers=obj",
        "data.geometry=polygon",
        "data.min_pixels=4096",
        "data.max_pixels=65536",
        "evaluation.decoding.boxes=best_iou",
    ],
)
def test_each_setting_that_answers_depend_on_is_one_of_the_session(setting):
    """Otherwise the answers of one setting would be continued under another."""
    engine = RuleEngine()
    engine.names, engine.max_new_tokens = ("cat",), 64
    assert session.session_settings(detector(engine, setting)) != session.session_settings(detector(engine))


def test_each_fact_of_model_and_boxes_is_one_of_the_session(tmp_path, monkeypatch):
    def engine(**facts):
        made = RuleEngine()
        vars(made).update({"names": ("cat",)} | facts)
        return made

    local = detector(engine())
    served = engine(urls=("http://a/v1",), system="be brief", chat_template_kwargs={"enable_thinking": False})
    monkeypatch.chdir(tmp_path)
    for name in ("m", "n"):
        (tmp_path / name).mkdir()
    changed = {
        "rule": local,
        "labels": replace(local, labels=frozenset({"dog"})),
        "only": detector(engine(only=("dog",))),
        "min_score": local.with_threshold(min_score=0.5),
        "views": detector(engine(), "evaluation.views=[mirror]"),
        "names": detector(engine(names=("dog",))),
        "tokens": detector(engine(max_new_tokens=65)),
        "folder": detector(engine(name="m")),
        "other folder": detector(engine(name="n")),
        "server": detector(served),
        "other server": detector(replace_of(served, urls=("http://b/v1",))),
        "other name": detector(replace_of(served, name="n")),
        "system": detector(replace_of(served, system="be long")),
        "thoughts": detector(replace_of(served, chat_template_kwargs={})),
    }
    settings = {name: session.session_settings(model) for name, model in changed.items()}
    settings["grammar"] = session.session_settings(changed["server"], "vllm")
    names = [detector(engine(names=frozenset(order))) for order in (("a", "b", "c", "d"), ("d", "c", "b", "a"))]
    assert [session.session_settings(model)["names"] for model in names] == [["a", "b", "c", "d"]] * 2
    texts = {name: json.dumps(values, sort_keys=True, default=str) for name, values in settings.items()}
    assert len(set(texts.values())) == len(texts)
    same = session.session_settings(detector(engine(name=str(tmp_path / "m"))))
    assert same == settings["folder"]
    assert session.session_settings(detector(replace_of(served, urls=("http://a/v1/",)))) == settings["server"]


def replace_of(engine, **facts):
    made = type(engine)()
    vars(made).update(vars(engine) | facts)
    return made
