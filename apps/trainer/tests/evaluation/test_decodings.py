"""The answers of several decodings: what is generated once, what each file holds, and what is scored with what."""

import json
from types import SimpleNamespace

import pytest
from tiny_run import tiny_config

from coord_codec import InputError, RunError
from coord_trainer.evaluation import decodings, score
from coord_trainer.evaluation.verdict import memorising_verdict


class Finish(SimpleNamespace):
    changes = False

    def write_counts(self, folder, records):
        self.counted.append((folder.name, len(records)))


class Detector:
    """Answers by the grammar of its decoding; boxes of another kind are its own."""

    def __init__(self, config, decoding, counted):
        self.config, self.decoding = config, decoding
        self.finish = Finish(changes=decoding.boxes != "tokens", counted=counted)
        self.asked = []

    def calibrated_as(self, checkpoint):
        self.asked.append(checkpoint)
        return self

    def with_threshold(self, **threshold):
        self.asked.append(threshold)
        return self

    def read(self, record):
        return [f"{self.decoding.boxes} of {record['text']}"]


@pytest.fixture
def predict(monkeypatch, tmp_path):
    """Predict with stand-ins; returns the files, what was generated and the detectors."""

    def call(config, card=None, failing=(), **more):
        seen = SimpleNamespace(generated=[], detectors={}, counted=[], limits=[], begun=[], discarded=[])

        def detector_of(opened, config, images, decoding, limit, name, trained):
            seen.limits.append((limit, name, trained))
            return seen.detectors.setdefault(decoding.name, Detector(config, decoding, seen.counted))

        def answer_into(file, detector, sources, batch, raw, title):
            seen.generated.append((detector.decoding.name, batch, title))
            records = [{"image": s, "text": f"{detector.decoding.grammar} {s}"} for s in sources]
            return [r | ({"error": "bad", "text": None} if r["image"] in failing else {}) for r in records], None

        opened = SimpleNamespace(family=None, processor=SimpleNamespace(tokenizer="t"))
        images = SimpleNamespace(words={"cat"}, digest="d", classes=())
        monkeypatch.setattr(decodings, "open_checkpoint", lambda *_: opened)
        monkeypatch.setattr(decodings, "check_speed", lambda *_: None)
        monkeypatch.setattr(decodings, "token_limit", lambda _, tokenizer, words, most: 1000 + most)
        monkeypatch.setattr(decodings, "read_card", lambda _: card)
        monkeypatch.setattr(decodings, "detector_of", detector_of)
        monkeypatch.setattr(decodings, "sources_of", lambda _, limit: ["a", "b", "c"][:limit])
        monkeypatch.setattr(decodings, "depends_on", lambda *words: words[3].decoding.name)
        monkeypatch.setattr(decodings, "begin", lambda path, record: seen.begun.append((path, record)) or path)
        monkeypatch.setattr(decodings, "discard", seen.discarded.append)
        monkeypatch.setattr(decodings, "answer_into", answer_into)
        monkeypatch.setattr(decodings, "with_objects", lambda record, found: record | {"objects": found})
        monkeypatch.setattr(decodings, "is_answered", lambda record: "error" not in record)
        seen.count = decodings.predict_images(config, tmp_path, images, tmp_path / "predictions.jsonl", **more)
        seen.files = {
            str(path.parent.relative_to(tmp_path)): [json.loads(line) for line in path.read_text().splitlines()]
            for path in tmp_path.rglob("predictions.jsonl")
        }
        return seen

    return call


MANY = [
    {},
    {"boxes": "median"},
    {"grammar": "markers"},
    {"grammar": "markers", "boxes": "best_iou"},
    {"boxes": "expectation"},
]


def test_answers_are_generated_once_for_each_grammar_and_boxes_computed_for_each_decoding(predict):
    seen = predict(tiny_config(evaluation={"decoding": MANY, "batch_size": 5, "limit": 2}))
    assert [(name, batch) for name, batch, _ in seen.generated] == [("none", 5), ("markers", 5)] and seen.count == 2
    assert [title for *_, title in seen.generated] == ["generating (none)", "generating (markers)"]
    for grammar, boxes, folder in (
        ("none", "tokens", "."), ("none", "median", "decodings/none-median"),
        ("markers", "tokens", "decodings/markers"), ("markers", "best_iou", "decodings/markers-best_iou"),
        ("none", "expectation", "decodings/none-expectation"),
    ):  # fmt: skip
        plain = [{"image": name, "text": f"{grammar} {name}"} for name in "ab"]
        own = [r | {"objects": [f"{boxes} of {r['text']}"]} for r in plain] if boxes != "tokens" else plain
        assert seen.files.pop(folder) == own, folder
    assert not seen.files and len(seen.begun) == len(seen.discarded) == 2
    assert seen.counted == [("none-median", 2), ("markers-best_iou", 2), ("none-expectation", 2)]


@pytest.mark.parametrize(
    ("evaluation", "data", "limit"),
    [({}, {}, 1003), ({"max_new_tokens": 7}, {}, 7), ({}, {"shapes": {"max_objects": 2}}, 1002)],
)
def test_detectors_have_the_limit_names_of_the_training_and_threshold_that_are_asked_for(
    predict, tmp_path, evaluation, data, limit
):
    for card, names in ((None, ()), (SimpleNamespace(names=("x", "y")), ("x", "y"))):
        seen = predict(tiny_config(evaluation=evaluation, data=data), card=card)
        assert seen.limits == [(limit, str(tmp_path), names)]
        assert seen.detectors["none"].asked == [tmp_path, {}]
    seen = predict(tiny_config(), threshold={"min_score": 0.5, "precision": None})
    assert seen.detectors["none"].asked == [tmp_path, {"min_score": 0.5, "precision": None}]


def test_image_without_an_answer_ends_the_run_by_name(predict):
    with pytest.raises(RunError, match="2 images of 3 cannot be answered; the first, b: bad"):
        predict(tiny_config(), failing=("b", "c"))


class Scored(SimpleNamespace):
    """An evaluation with an AP; writes down what it is told."""

    def __init__(self, name):
        super().__init__(name=name, shapes=None, coco={"AP": 0.5, "AP50": 0.6}, notes=("diagnosis: swapped", "other"))
        self.ceiling, self.format, self.written = {"AP": 0.5}, {"truncated": 0}, []

    def to_json(self):
        return self.name

    def write_report(self, folder, **more):
        self.written.append((folder, more))


@pytest.mark.parametrize("images", ["heldout", "train"])
def test_report_is_that_of_the_first_decoding_and_each_other_has_its_own_file(monkeypatch, tmp_path, capsys, images):
    config = tiny_config(evaluation={"decoding": MANY, "images": images, "overlays": 3})
    for decoding in config.evaluation.decoding[1:]:
        (tmp_path / "decodings" / decoding.name).mkdir(parents=True)
    made = {}
    monkeypatch.setattr(
        score,
        "score_predictions",
        lambda _, path, images, decoding: made.setdefault(decoding.name, Scored(decoding.name)),
    )
    monkeypatch.setattr(score, "_beyond_cap", lambda *_: 0)
    sets = SimpleNamespace(root=tmp_path / "photos", __len__=lambda: 3)
    found = score.report_on(config, tmp_path, type("Set", (), {"root": sets.root, "__len__": lambda _: 3})())
    assert found is made["none"] and found.name == "none"
    ((folder, told),) = found.written
    assert folder == tmp_path and told["max_overlays"] == 3 and told["image_root"]("a") == sets.root / "a"
    what = {"train": "memorised: scored on the training images", "heldout": "scored on held-out images"}[images]
    assert told["title"] == f"{tmp_path.name}: 3 images, {what}"
    assert told["facts"]["decoding"] == "none" and told["facts"]["model"] == "tiny, built for the run"
    assert [section.title for section in told["sections"]] == ["Memorising"] * (images == "train")
    others = {path.parent.name: path.read_text() for path in tmp_path.rglob("evaluation.json")}
    assert others == {d.name: d.name for d in config.evaluation.decoding[1:]}
    out = capsys.readouterr().out
    assert out.count("diagnosis: swapped") == 5 and "diagnosis: swapped (markers)" in out and "other" not in out
    assert "none, the run's own decoding" in out and ("memorised: reached" in out) is (images == "train")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert score.report_on(config, tmp_path, sets) is None


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_folder_of_an_evaluation_stays_where_it_holds_earlier_answers(monkeypatch, tmp_path, resumes, fails):
    out = tmp_path / "scored"
    if resumes:
        out.mkdir()
        score.unfinished(out).touch()
        (out / "answers").write_text("kept")

    def load(config, folder):
        assert folder == out / "data"
        if fails:
            raise InputError("faulty")
        return "images"

    reported = []
    monkeypatch.setattr(score, "load_scored", load)
    monkeypatch.setattr(score, "report_sets", lambda *words: reported.append(words))
    if fails:
        with pytest.raises(InputError, match="faulty"):
            score._open_evaluation(None, out)
        assert out.exists() is resumes and (
            not resumes or (score.unfinished(out).is_file() and len(list(out.iterdir())) == 2)
        )
        return
    assert score._open_evaluation(None, out) == "images" and reported == [(out, ["images"])]
    assert score.unfinished(out).is_file()


def test_verdict_takes_the_last_loss_and_the_samples_of_all_sources(tmp_path):
    config = tiny_config()
    scored = SimpleNamespace(shapes=None, coco={"AP": 0.5, "AP50": 0.5}, ceiling={"AP": 0.9}, format={"truncated": 0})

    def told(losses, facts):
        lines = [{"step": n, "train_text_loss": loss} for n, loss in enumerate(losses)] + [{"step": 9, "eval_AP": 0.1}]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (tmp_path / "manifest.json").write_text(json.dumps(facts))
        return memorising_verdict(config, scored, tmp_path, 0)

    facts = {"steps": 7, "samples_seen": {"a": 30, "b": 10}, "data": {"train": {"images": 8}}}
    assert "is 0.30 per token after 7 steps, in which each image was seen 5 times" in told([0.01, 0.3], facts)
    assert "not learnt yet" not in told([0.3, 0.01], facts)
    assert "after 9 steps;" in told([0.3], {})
    shapes = SimpleNamespace(shapes={"AP": 0.9, "ceiling": {"AP": 0.905}}, coco={"AP": 0.0}, ceiling={})
    assert memorising_verdict(config, shapes, tmp_path, 0).startswith("memorised: reached (AP 0.900")
    below = SimpleNamespace(shapes={"AP": 0.9, "ceiling": {"AP": -1.0}}, coco={}, ceiling={})
    assert "not known" in memorising_verdict(config, below, tmp_path, 0)


@pytest.mark.parametrize(("classes", "asked"), [((), {"cat", "dog"}), (("dog", "cat", "cow"), ("dog", "cat", "cow"))])
def test_detector_of_a_decoding_has_its_engine_words_limit_and_classes_in_their_order(monkeypatch, classes, asked):
    config, seen = tiny_config(evaluation={"decoding": MANY}), []

    class Engine(SimpleNamespace):
        def asked(self, config, words, trained, *, limit):
            return SimpleNamespace(**vars(self), of=(config, words, trained, limit))

    monkeypatch.setattr(
        decodings, "LocalEngine", lambda name, opened, config: seen.append(config) or Engine(name=name, opened=opened)
    )
    monkeypatch.setattr(decodings, "AnsweringModel", lambda engine, config, names: (engine, config, names))
    images = SimpleNamespace(words={"cat", "dog"}, classes=classes)
    for decoding in config.evaluation.decoding:
        engine, own, names = decodings.detector_of("opened", config, images, decoding, 9, "m", ("x",))
        assert own.evaluation.decoding == (decoding,) and seen[-1] == own
        assert own == config.model_copy(update={"evaluation": own.evaluation})
        assert (engine.name, engine.opened, engine.of) == ("m", "opened", (own, images.words, ("x",), 9))
        assert names == tuple(asked)
