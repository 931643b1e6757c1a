"""Runs from config to report: every loss group, plain numbers, JSON; and what groups of one seed share."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from tiny_run import TINY, read_lines, tiny_config

from coord_codec import InputError
from coord_detect.model.card import read_card
from coord_trainer.config.run_config import load_run_config
from coord_trainer.data.shapes import draw_sets
from coord_trainer.folder import write_config
from coord_trainer.model.tiny import base_checkpoint

pytest.importorskip("swift")

ROOT = Path(__file__).parents[3]
SOFT = {"coord_soft_ce_w1": {"enabled": True}}
PLAIN = {"coord_tokens": {"enabled": False}}


def config(custom, **sections):
    """A run of two steps on 8 images that logs gradient norms and scores 4."""
    given = {
        "data": {"shapes": {"train": 8, "heldout": 4}},
        "run": {"threads": 1, "gradient_norms": True},
        "evaluation": {"max_new_tokens": 24},
        "training": {
            "max_steps": 2,
            "save_steps": 2,
            "eval_steps": 2,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "train_dataloader_shuffle": True,
            "system": "Name every object.",
        },
    }
    return tiny_config(custom=custom, **{k: given.get(k, {}) | sections.get(k, {}) for k in given | sections})


def carry_out(settings, folder):
    """Train, answer and score; returns the result, the manifest and the log."""
    from coord_trainer.run import train_and_score

    result = train_and_score(settings, folder)
    return result, json.loads((folder / "manifest.json").read_text()), read_lines(folder)


def test_view_that_does_not_suit_the_prompt_is_refused_before_anything_is_written(tmp_path):
    asked = config(SOFT, data={"prompt": "the shape on the left"}, evaluation={"views": ["mirror"]})
    with pytest.raises(InputError, match=r"evaluation\.views: mirror: .* names a side"):
        carry_out(asked, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Every group of phase 1, two steps of the same seed each; the last one answers."""
    finished = {}
    files = sorted((ROOT / "configs" / "phase1").glob("*.yaml"))
    for file in files:
        custom = load_run_config(file, []).model_dump(mode="json")["custom"]
        settings = config(custom, evaluation={} if file == files[-1] else {"images": "none"})
        finished[file.stem] = carry_out(settings, tmp_path_factory.mktemp(file.stem) / "run")
    return finished


@pytest.mark.slow
def test_groups_of_one_seed_begin_with_the_same_batches_and_weights(groups):
    assert len(groups) > 1
    text = {round(lines[0]["train_text_loss"], 5) for _, _, lines in groups.values()}
    assert len(text) == 1  # the loss of the words at the first step: same weights, same samples
    ce = {round(lines[0]["coord_diag/coord_token_ce"], 4) for _, _, lines in groups.values()}
    assert len(ce) == 1


@pytest.fixture
def evaluate(groups, run, tmp_path):
    """Call `evaluate` with the last group's checkpoint; returns exit code, stderr, stdout and the answers."""

    def call(*words, checkpoint=None):
        settings = ["data.shapes.train=8", "data.shapes.heldout=4", "model.tiny.hidden=48"]
        settings.append("evaluation.max_new_tokens=24")
        place = checkpoint or list(groups.values())[-1][0].checkpoint
        answers = tmp_path / "scored" / "predictions.jsonl"
        code, error, told = run("evaluate", place, "--out", answers.parent, *settings, *words)
        return code or 0, error, told, answers.read_text() if answers.exists() else None

    return call


@pytest.mark.slow
def test_checkpoint_is_asked_as_it_was_trained(groups, evaluate):
    result, manifest, _ = list(groups.values())[-1]
    card = read_card(result.checkpoint)
    assert (card.system, card.markers, card.form) == ("Name every object.", "obj", "tokens")
    assert card.fingerprint == manifest["fingerprint"]
    assert (card.pixels.min, card.pixels.max) == (32 * 32, 96 * 96)
    code, error, out, answers = evaluate()
    assert (code, "no coordexp.json" in out) == (0, False), error
    assert answers == (result.folder / "predictions.jsonl").read_text()


def with_another_fingerprint(folder):
    read_card(folder).model_copy(update={"fingerprint": "0123456789abcdef"}).write(folder)


def with_another_template(folder):
    template = folder / "chat_template.jinja"
    template.write_text("{{ 'Hello. ' }}" + template.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "words", "told"),
    [
        (
            None,
            ("data.markers=qwen", "training.system=Other."),
            "data.markers is 'qwen' and the checkpoint's markers is 'obj'; training.system is 'Other.'",
        ),
        (with_another_fingerprint, (), "0123456789abcdef: other coordinate tokens, ids or markers"),
        (with_another_template, (), "its chat template asks with another prompt"),
    ],
)
def test_checkpoint_that_was_trained_otherwise_is_exit_code_2(groups, evaluate, tmp_path, edit, words, told):
    copied = None
    if edit:
        copied = shutil.copytree(list(groups.values())[-1][0].checkpoint, tmp_path / "edited")
        edit(copied)
    code, error, _, answers = evaluate(*words, checkpoint=copied)
    assert (code, answers) == (2, None)
    assert told in error.splitlines()[-1] and "Traceback" not in error


@pytest.mark.slow
def test_checkpoint_without_a_card_is_asked_as_the_configuration_says(groups, evaluate, tmp_path):
    result = list(groups.values())[-1][0]
    copied = shutil.copytree(result.checkpoint, tmp_path / "bare")
    (copied / "coordexp.json").unlink()
    code, error, out, answers = evaluate("data.markers=obj", "training.system=Name every object.", checkpoint=copied)
    assert (code, "no coordexp.json" in out) == (0, True), error
    assert answers == (result.folder / "predictions.jsonl").read_text()


TERMS = {
    "a": {"text_ce", "coord_ce"},
    "b": {"text_ce", "box"},
    "c": {"text_ce", "coord_ce", "box"},
    "mixed": {"text_ce", "coord_ce", "soft_ce", "w1", "gate"},
    "soft": {"text_ce", "soft_ce", "w1", "gate"},
}


@pytest.mark.slow
def test_gradient_norm_of_every_term_with_a_weight_is_logged(groups):
    for name, terms in TERMS.items():
        first = groups[name][2][0]
        assert {name.removeprefix("grad_norm/") for name in first if name.startswith("grad_norm/")} == terms
        norms = [first[f"grad_norm/{term}"] for term in terms]
        assert all(norm > 0 for norm in norms)
        # The whole gradient is their sum, so its norm cannot exceed the sum of theirs.
        assert first["grad_norm"] <= sum(norms) * (1 + 1e-4)


@pytest.fixture(scope="module")
def without_coord_tokens(tmp_path_factory):
    """A checkpoint whose tokenizer has no coordinate tokens."""
    folder = tmp_path_factory.mktemp("plain")
    settings = config(PLAIN, model={"tiny": TINY | {"smooth_rows": False}})
    train, _ = draw_sets(settings, folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coord_trainer.model.tiny.coord_tokens", lambda grid: [])
        return base_checkpoint(settings, folder, train)


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize(("style", "tokenizer"), [("markers", "with"), ("json", "without")])
def test_numbers_as_text_are_trained_answered_and_scored(style, tokenizer, without_coord_tokens, tmp_path):
    model = {"path": without_coord_tokens} if tokenizer == "without" else {}
    result, manifest, lines = carry_out(config(PLAIN, data={"style": style}, model=model), tmp_path / "run")
    assert (manifest["fingerprint"] is None) == (tokenizer == "without")
    assert lines[0]["train_total_loss"] == pytest.approx(lines[0]["train_text_loss"])
    assert lines[0]["coord_diag/coord_tokens"] == 0
    assert result.evaluation.format["answers"] == 4
    answers = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert all("coord_logprobs" not in answer for answer in answers) or tokenizer == "with"


@pytest.mark.slow
def test_coordinate_tokens_inside_json_are_trained_with_their_boxes(tmp_path):
    custom = {"coord_objective": {"use_coordexp_loss": True, "use_geom_loss": True, "use_coord_ce": True}}
    _, _, lines = carry_out(config(custom, data={"style": "json"}), tmp_path / "run")
    assert lines[0]["train_coord_loss"] > 0
    assert "coord_diag/fallback_boxes" not in lines[0]


def test_random_order_is_another_one_each_epoch_and_the_same_when_repeated(opened_run):
    from coord_trainer.swift.open_run import sample_set

    _, opened, train, _ = opened_run
    samples = sample_set(tiny_config(data={"order": "random"}), opened, train)

    def targets(epoch):
        written = [samples.sample(index, epoch) for index in range(len(samples))]
        return [sample["labels"] for sample in written], [sample["coord_boxes"] for sample in written]

    (first, boxes), (second, others), (again, _) = targets(0), targets(1), targets(0)
    assert first == again != second
    assert [sorted(b) for b in boxes] == [sorted(b) for b in others]  # the same objects


@pytest.mark.slow
def test_resume_with_other_annotations_is_refused_before_the_run_folder_changes(tmp_path):
    from coord_trainer.run import train_and_score

    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    record = {"image": "a.png", "objects": [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    data = {"markers": "obj", "annotations": str(tmp_path / "a.jsonl")}
    evaluation = {"images": "none"}
    run = tmp_path / "run"
    run.mkdir()
    write_config(run, tiny_config(data=data, evaluation=evaluation))
    (run / "manifest.json").write_text('{"status": "finished", "steps": 6, "data": {"train": {"digest": "a"}}}')
    (run / "metrics.jsonl").write_text('{"step": 1}\n')
    before = {file: file.read_bytes() for file in run.iterdir()}
    changed = tiny_config(data=data, evaluation=evaluation, run={"resume": True}, training={"max_steps": 9})
    with pytest.raises(InputError, match=r"the train data has changed .*\(digest a, now"):
        train_and_score(changed, run)
    assert {file: file.read_bytes() for file in run.iterdir()} == before


class Stages:
    """Stands for the course of a run; notes what each of its stages is given."""

    interruption, opened, recorded = "signal", None, {}

    def __init__(self, config, folder):
        self.stages = []

    def __enter__(self):
        Stages.last = self
        return self

    def __exit__(self, *error):
        return None

    def __getattr__(self, name):
        return lambda *given, **more: self.stages.append((name, *given, *more.items())) or nullcontext()


@pytest.mark.parametrize("scores", [True, False])
def test_run_checks_every_source_and_hands_on_what_each_stage_made(tmp_path, monkeypatch, scores):
    """What is found in each source's images is written down, and views are asked for the classes in their order."""
    from coord_trainer import run as stages

    found, written, threads = {"a": ["one", "two"], "b": ["three"], "c": []}, [], []
    scored = SimpleNamespace(classes=("dog", "cat"), words={"cat"}) if scores else None
    facts = {"train": {"digest": "t"}} | ({"heldout": {"digest": "h"}} if scores else {})
    data = SimpleNamespace(
        scored=scored, heldout="held", train=SimpleNamespace(image_sets=[*found]), facts=lambda: facts,
        without_evidence=lambda: data, write=written.append,
    )  # fmt: skip
    settings = tiny_config(
        data={"sources": [{"annotations": f"{n}.json", "name": n} for n in found], "class_prompt": "{classes}?"},
        evaluation={"images": "none"}, run={"threads": 3},
    )  # fmt: skip
    seen = {}

    def note(name, result=None):
        return lambda *given: (seen.setdefault(name, given), result)[1]

    for name, result in (
        ("refuse_other_versions", None), ("refuse_loose_tasks", None), ("check_model_path", None), ("_load", data),
        ("check_views", None), ("refuse_differences", None), ("base_checkpoint", "base"), ("report_on", "report"),
        ("train_model", SimpleNamespace(facts={"steps": 2}, checkpoint=tmp_path / "c-2")), ("predict_images", 4),
        ("write_findings", None),
    ):  # fmt: skip
        monkeypatch.setattr(stages, name, note(name, result))
    monkeypatch.setattr(stages, "Run", Stages)
    monkeypatch.setattr(stages, "check_before_training", lambda alone, images, heldout: found[images] + [heldout])
    monkeypatch.setattr(stages.torch, "set_num_threads", threads.append)
    result = stages.train_and_score(settings, tmp_path)
    assert threads == [3] and written == [tmp_path]
    assert seen["write_findings"] == (tmp_path / "findings.json", ["one", "two", "held", "three", "held", "held"])
    assert seen["train_model"] == (settings, tmp_path, "base", data.train, scored, "signal")
    (digests,) = seen["refuse_differences"]
    assert {name: digests[name] for name in digests if name != "configuration"} == {
        f"{name} data": one["digest"] for name, one in facts.items()
    }
    begun = [("open_folder", facts), ("begin", facts), ("record", ("steps", 2)), ("stop_if_interrupted",)]
    assert Stages.last.stages == begun + ([("scoring", tmp_path / "c-2")] if scores else [])
    assert (result.folder, result.checkpoint, result.evaluation) == (
        tmp_path,
        tmp_path / "c-2",
        "report" if scores else None,
    )
    if scores:
        views, asked = seen["check_views"]
        assert (asked.labels, asked.class_prompt, views) == (("dog", "cat"), "{classes}?", settings.evaluation.views)
        assert seen["predict_images"] == (settings, tmp_path / "c-2", scored, tmp_path / "predictions.jsonl")
    else:
        assert not {"check_views", "predict_images", "report_on"} & {*seen}


@pytest.mark.parametrize(("images", "ranks", "enough"), [(2, 2, True), (1, 2, False), (1, 1, True), (3, 2, True)])
def test_each_rank_needs_an_image(tmp_path, monkeypatch, images, ranks, enough):
    from coord_trainer import run as stages

    data = SimpleNamespace(train=range(images))
    monkeypatch.setattr(stages, "load_data", lambda config, folder: data)
    monkeypatch.setattr(stages, "world_size", lambda: ranks)
    if enough:
        assert stages._load(tiny_config(), tmp_path) is data
        return
    with pytest.raises(InputError, match="1 usable training image for 2 ranks"):
        stages._load(tiny_config(), tmp_path)
