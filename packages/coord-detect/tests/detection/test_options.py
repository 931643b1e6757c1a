"""Every option arrives: of the command line, of `predict` and `Detector`, at a model here, on servers or on Ray."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from fakes import RuleEngine, card_of, make_images
from fakes import detector as answering
from PIL import Image
from tiny_model import tiny_tokenizer

from coord_codec import InputError
from coord_detect import Detector, predict
from coord_detect.cli import answering as commands
from coord_detect.cli.options import SETTINGS, words_of
from coord_detect.detection import calibrate, command, demo
from coord_detect.detection import detector as detectors
from coord_detect.detection.arguments import check_request, read_settings
from coord_detect.served import served_model
from coord_detect.served.request import Request
from coord_detect.served.served_model import open_served
from coord_detect.settings.record import Settings

URLS = ("http://a/v1", "http://b/v1")


class Stopped(Exception):
    """What was asked is known, and nothing is answered."""


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The arguments with which a model would be opened: of a folder, of servers, and on Ray."""
    seen = []

    def stop(kind):
        def call(*words, **named):
            seen.append((kind, words, named))
            raise Stopped

        return call

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command.AnsweringModel, "load", stop("local"))
    monkeypatch.setattr(served_model, "open_served", stop("served"))
    monkeypatch.setattr(detectors, "open_served", stop("served"))
    make_images(tmp_path / "photos", a=(4, 4), b=(4, 4))
    objects = [{"desc": "zebra", "bbox": [0, 0, 1, 1]}, {"desc": "cat", "bbox": [0, 0, 1, 1]}]
    row = {"image": "a.png", "width": 4, "height": 4, "objects": objects}
    (tmp_path / "photos" / "i.jsonl").write_text(json.dumps(row))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return seen


def test_predict_hands_names_labels_and_settings_to_the_model_in_this_process(asked, tmp_path):
    config = Settings(evaluation={"limit": 1})
    with pytest.raises(Stopped):
        predict("model", "photos/i.jsonl", "out", config, labels=("dog", "ant"), only=("cat", "bee"))
    with pytest.raises(Stopped):
        predict(Path("model"), ["photos"], "out")
    (_, words, _), (_, others, _) = asked
    assert words == (Path("model"), config, ("cat", "zebra"), ("ant", "dog"), ("bee", "cat"))
    assert others == (Path("model"), Settings(), (), (), ())


def test_predict_hands_every_option_to_servers(asked):
    options = {"endpoints": (*URLS, URLS[0]), "served_name": "m", "labels": ("dog",), "only": ("cat",)}
    with pytest.raises(Stopped):
        predict("model", "photos/i.jsonl", "out", **options, grammar="vllm", concurrency=3, timeout=9.0)
    with pytest.raises(Stopped):
        predict(None, "photos", "out", endpoints=URLS, served_name="m")
    (kind, words, named), (_, others, usual) = asked
    assert kind == "served" and words == (URLS, "m", Path("model"), Settings(), ("dog",), ("cat", "zebra"))
    assert named == {"only": ("cat",), "grammar": "vllm", "concurrency": 3, "timeout": 9.0}
    assert others == (URLS, "m", None, Settings(), (), ())
    assert usual == {"only": (), "grammar": None, "concurrency": 16, "timeout": 300.0}  # 8 for each server
    with pytest.raises(InputError, match="--endpoint: name the model"):
        predict(None, "photos", "out", endpoints=URLS)
    with pytest.raises(InputError, match="expected a model and images"):
        predict(None, "photos", "out")


def test_predict_hands_addresses_of_copies_to_workers_of_ray(asked, monkeypatch):
    from coord_data.looking import engines
    from coord_detect.detection import ray_engine

    seen = []
    monkeypatch.setattr(engines, "import_ray", seen.append)
    monkeypatch.setattr(ray_engine, "open_on_ray", lambda *words, **named: seen.append((words, named)) or 1 / 0)
    monkeypatch.setattr(command, "_fetched", lambda word: "photos" if "://" in word else word)
    with pytest.raises(ZeroDivisionError):
        predict("model", "s3://bucket/a", "out", engine="ray", workers=2, only=("cat",))
    extra, (words, named) = seen
    assert extra == "coord-detect[ray]" and words == (Path("model"), Settings(), (), (), ("cat",))
    assert named["addresses"] == {Path("photos"): "s3://bucket/a"} and named["request"].workers == 2


def test_detector_hands_every_argument_to_servers_and_to_the_model_here(asked):
    with pytest.raises(Stopped):
        Detector(URLS, None, ["n"], ["l"], only=["o"], name="m", folder="model", grammar="sglang", concurrency=5,
                 timeout=7, calibrated=False, settings=["data.prompt=p"], views="mirror,scale:2",
                 speed="exact")  # fmt: skip
    with pytest.raises(Stopped):
        Detector(
            "model", None, ["n"], ["l"], only=["o"], calibrated=False, settings=["data.prompt=p"], views=["mirror"]
        )
    with pytest.raises(Stopped):
        Detector("model", config := Settings(data={"prompt": "p"}))
    (_, words, named), (_, local, more), (_, usual, rest) = asked
    assert words[:3] == (URLS, "m", Path("model")) and words[4:] == (["l"], ["n"])
    found = words[3]
    assert (found.data.prompt, found.evaluation.views, found.evaluation.speed) == ("p", ("mirror", "scale:2"), "exact")
    assert "model" not in found.model_fields_set and found.data.model_fields_set == {"prompt"}
    assert named == {"only": ["o"], "grammar": "sglang", "concurrency": 5, "timeout": 7, "calibrated": False}
    assert local[0] == "model" and local[2:] == (["n"], ["l"], ["o"]) and more == {"calibrated": False}
    assert local[1].evaluation.views == ("mirror",) and local[1].data.prompt == "p"
    assert usual == ("model", config, (), (), ()) and rest == {"calibrated": True}


def test_class_ids_are_those_of_names_then_of_the_card_then_of_the_images(tmp_path):
    ready = replace(answering(), names=("of images",))
    assert Detector(ready).names == ("of images",)
    assert Detector(ready, names=["x", "w"]).names == ("x", "w") and Detector(ready, names={"x", "w"}).names == (
        "w",
        "x",
    )
    card_of(names=("b", "a")).write(tmp_path)
    assert Detector(replace(ready, folder=tmp_path)).names == ("b", "a")
    card_of().write(tmp_path)
    assert Detector(replace(ready, folder=tmp_path)).names == ()


OPTIONS = {
    "--min-score": ("0.25", "min_score", 0.25),
    "--precision": ("0.5", "precision", 0.5),
    "--recall": ("0.5", "recall", 0.5),
    "--out": ("other", "out", Path("other")),
    "--images": ("photos", "images", "photos"),
    "--endpoint": (URLS[0], "endpoints", (URLS[0],)),
    "--model": ("m", "served_name", "m"),
    "--name": ("m", "served_name", "m"),
    "--concurrency": ("3", "concurrency", 3),
    "--timeout": ("3", "timeout", 3.0),
    "--export": ("coco", "exports", ("coco",)),
    "--image-prefix": ("p/", "image_prefix", "p/"),
    "--label": ("cat", "labels", ("cat",)),
    "--only": ("cat", "only", ("cat",)),
    "--grammar": ("vllm", "grammar", "vllm"),
    "--force": (None, "force", True),
    "--no-draw": (None, "draw", False),
    "--strict": (None, "strict", True),
    "--engine": ("ray", "engine", "ray"),
    "--workers": ("2", "workers", 2),
    "--cores": ("2", "cores", 2),
    "--gpu-share": ("0.5", "gpu_share", 0.5),
}


@pytest.mark.parametrize("flag", OPTIONS)
def test_flag_of_predict_sets_its_field_alone(run, monkeypatch, flag):
    seen = []
    monkeypatch.setattr("coord_detect.detection.arguments.check_request", lambda request: None)
    monkeypatch.setattr(command, "answer_request", lambda request, config: seen.append((request, config)))
    word, name, value = OPTIONS[flag]
    out = [] if flag == "--out" else ["--out", "out"]
    assert run("predict", "model", "a.png", "evaluation.limit=3", *out, flag, *([word] if word else []))[0] == 0
    ((request, config),) = seen
    usual = Request(Path("model"), ("a.png",), Path("out"))
    if flag == "--endpoint":  # without a folder of that name all words are images
        usual = replace(usual, model=None, sources=("model", "a.png"))
    given = [(f.name, getattr(request, f.name), getattr(usual, f.name)) for f in fields(request)]
    given = [(field, tuple(now) if isinstance(now, list) else now, before) for field, now, before in given]
    assert {field: now for field, now, before in given if now != before} == {name: value}
    assert config == Settings(evaluation={"limit": 3})


def test_flags_that_stand_for_settings_become_their_words():
    given = {"views": ["mirror,scale:2", "classes"], "speed": "exact", "batch_size": 2, "device": None, "other": 1}
    assert words_of(given) == [
        "evaluation.views=[mirror,scale:2,classes]", "evaluation.speed=exact", "evaluation.batch_size=2"
    ]  # fmt: skip
    assert given == {"other": 1} and words_of({"views": []}) == []
    further = words_of({"boxes": "median", "dtype": "float16"})
    assert further == ["evaluation.decoding.boxes=median", "model.dtype=float16"]
    values = {
        "views": "mirror",
        "speed": "exact",
        "boxes": "median",
        "batch_size": "2",
        "device": "cpu",
        "dtype": "float16",
    }
    found = read_settings(None, [f"{SETTINGS[name]}={value}" for name, value in values.items()])
    section = found.evaluation
    assert (section.views, section.speed, section.batch_size, section.device) == (("mirror",), "exact", 2, "cpu")
    assert section.decoding[0].boxes == "median" and found.model.dtype == "float16"


def test_calibrate_and_demo_hand_their_options_on(run, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(calibrate, "calibrate_model", lambda *words: seen.append(words))
    words = ["--images", "photos", "--only", "cat", "--only", "dog", "--strict", "--views", "mirror", "data.prompt=p"]
    code, _, out = run("calibrate", "model", "val.json", *words)
    assert code == 0 and "written into the coordexp.json of model" in out
    assert run("calibrate", "model", "val.json")[0] == 0
    config = Settings(evaluation={"views": "mirror"}, data={"prompt": "p"})
    assert seen == [
        (Path("model"), Path("val.json"), Path("photos"), config, True, ["cat", "dog"]),
        (Path("model"), Path("val.json"), None, Settings(), False, ()),
    ]
    seen.clear()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    monkeypatch.setattr(detectors, "Detector", lambda *words, **named: seen.append((words, named)) or "detector")
    monkeypatch.setattr(demo, "serve_demo", lambda *words: seen.append(words))
    assert run("demo", "model", "--port", "81", "--host", "0.0.0.0", "--min-score", "0.5", "--speed", "exact")[0] == 0
    assert run("demo", "model")[0] == 0
    none = {"precision": None, "recall": None}
    assert seen == [
        ((Path("model"), Settings(evaluation={"speed": "exact"})), {"min_score": 0.5} | none),
        ("detector", "0.0.0.0", 81),
        ((Path("model"), Settings()), {"min_score": None} | none),
        ("detector", "127.0.0.1", 7860),
    ]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, error, _ = run("demo", "model")
    assert code == 2 and "demo needs gradio" in error


def test_grammar_is_printed_in_its_form_with_its_names(run, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    card_of(Settings(data={"max_objects": 7, "markers": "obj"})).write(tmp_path / "model")
    code, _, lark = run("grammar", "model", "--only", "dog", "--label", "a cat")
    assert code == 0 and "start: object{0,7}" in lark and 'name: "a cat" | "dog"\n' in lark
    code, _, ebnf = run("grammar", "model", "--form", "ebnf")
    assert code == 0 and ebnf.startswith("root ::= object{0,7}") and "[^<\\n]{1,64}" in ebnf
    assert (commands.predict, commands.calibrate, commands.grammar, commands.demo) == commands.COMMANDS


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"served_name": "m"}, "--model is for --endpoint, and without it has no effect"),
        ({"concurrency": 2}, "--concurrency is for --endpoint"),
        ({"timeout": 2.0}, "--timeout is for --endpoint"),
        ({"grammar": "vllm"}, "in this process evaluation.decoding.grammar=markers decodes under one"),
        ({"workers": 2}, "--workers is for --engine ray, and without it has no effect"),
        ({"cores": 2}, "--cores is for --engine ray"),
        ({"gpu_share": 0.0}, "--gpu-share is for --engine ray"),
        ({"endpoints": URLS, "workers": 2}, "--workers is for --engine ray"),
        ({"engine": "ray", "timeout": 2.0}, "--timeout is for --endpoint"),
        ({"endpoints": URLS, "timeout": float("nan")}, "timeout: expected a number"),
    ],
)
def test_option_that_would_have_no_effect_is_refused(options, told):
    with pytest.raises(InputError) as caught:
        check_request(Request(Path("m"), ("a.png",), Path("out"), **options))
    assert told in str(caught.value)


def served_from(tmp_path, words=(), model=True, card=True, tokenizer=True, **options):
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "coordexp.json").unlink(missing_ok=True)
    if tokenizer:
        tiny_tokenizer().save_pretrained(folder)
    if card:
        trained = Settings(data={"prompt": "Where?", "markers": "obj", "max_objects": 2, "max_pixels": 9216})
        stated = {"system": "You see.", "names": ("b", "a"), "chat_template_kwargs": {"enable_thinking": False}}
        card_of(trained, **stated, pixels={"max": 9216}).write(folder)
    config = read_settings(None, list(words), endpoint=True)
    return open_served((*URLS, URLS[0]), "m", folder if model else None, config, **options)


def test_client_asks_as_the_card_says_and_as_the_settings_say_without_one(tmp_path, capsys):
    found = served_from(tmp_path, names=(), labels=("cat", "ant"), concurrency=3, timeout=9.0)
    engine = found.engine
    assert (engine.urls, engine.name, engine.prompt, engine.system) == (URLS, "m", "Where?", "You see.")
    assert (engine.markers, engine.concurrency, engine.timeout, engine.coordinates) == ("obj", 3, 9.0, True)
    assert engine.chat_template_kwargs == {"enable_thinking": False} and not engine.constraint
    assert engine.max_new_tokens == 2 * (6 + 12) + 16 and engine.sides is None
    assert (found.names, found.labels, found.folder) == (("b", "a"), {"cat", "ant"}, tmp_path / "model")
    assert "no coordexp.json" not in capsys.readouterr().out
    assert served_from(tmp_path, names=("c",)).names == ("c",)
    assert served_from(tmp_path, ["evaluation.max_new_tokens=9"]).engine.max_new_tokens == 9
    words = ["data.style=json", "training.system=Hi", "custom.coord_tokens.enabled=false", "data.prompt=p"]
    for model in (True, False):
        plain = served_from(tmp_path, words, model, card=False, tokenizer=False)
        engine = plain.engine
        assert (engine.prompt, engine.system, engine.markers, engine.coordinates) == ("p", "Hi", None, False)
        assert (engine.chat_template_kwargs, plain.names, engine.concurrency, engine.timeout) == ({}, (), 8, 300.0)
        assert "prompt, markers and limits are the configuration's, unchecked" in capsys.readouterr().out
    assert engine.max_new_tokens == 30 * (16 + 16 + 12) + 16  # without a tokenizer


@pytest.mark.slow
def test_client_constrains_by_the_grammar_of_the_folder_and_refuses_what_a_server_cannot(tmp_path):
    sent = served_from(tmp_path, grammar="vllm").engine.constraint["structured_outputs"]["grammar"]
    assert "object{0,2}" in sent and "<[262]>" not in sent.partition("object:")[0]
    assert served_from(tmp_path, grammar="sglang").engine.constraint["ebnf"].startswith("root ::= object{0,2}")
    for options, told in (
        ({"grammar": "vllm", "model": False}, "give its folder as MODEL"),
        ({"grammar": "other"}, "grammar: expected one of vllm, sglang, found 'other'"),
        ({"only": ("cat",)}, "only: a server states probabilities"),
        ({"words": ["evaluation.decoding.grammar=markers"]}, "decodes under one with --grammar"),
        ({"words": ["evaluation.views=[classes]"], "card": False, "model": False}, "no labels are known"),
    ):
        with pytest.raises(InputError, match=told):
            served_from(tmp_path, **options)
    assert served_from(tmp_path, ["evaluation.views=[classes]"]).finish.question.labels == ("a", "b")


def test_pixels_are_sent_at_the_sides_of_the_folders_processor(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    size = {"shortest_edge": 1024, "longest_edge": 65536}
    settings = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "merge_size": 2, "size": size}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    sides = served_from(tmp_path).engine.sides
    assert (sides.factor, sides.min_pixels, sides.max_pixels) == (32, 1024, 9216)  # the limit of the card
    assert served_from(tmp_path, card=False).engine.sides.max_pixels == 65536
    assert (
        sides.sides(192, 192) == (96, 96)
        and sides.sides(192, 192, 4.0) == (192, 192)
        and sides.sides(32, 32, 0.25) != (96, 96)
    )
    assert sides.sides(10, 2010) == (10, 2010)


def test_calibration_of_the_folder_is_that_of_the_client_unless_it_is_not_wanted(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        served_model.AnsweringModel, "calibrated_as", lambda self, folder: seen.append(folder) or "calibrated"
    )
    assert served_from(tmp_path) == "calibrated" and seen == [tmp_path / "model"]
    assert (
        served_from(tmp_path, calibrated=False) != "calibrated" and served_from(tmp_path, model=False) != "calibrated"
    )


def test_engine_of_servers_is_asked_for_as_many_images_as_it_takes_at_once(tmp_path):
    engine = RuleEngine(concurrency=3)
    engine.urls = URLS
    frames = iter([Image.new("RGB", (4, 4))] * 7)
    results = Detector(answering(engine)).predict(frames, batch=1, progress=False)
    next(results)
    assert len(engine.batches) == 3
    assert len(list(results)) == 6 and len(engine.batches) == 7
