"""The trainer's own sections of a report."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_run import tiny_config

from coord_codec import Instance, encode_target
from coord_detect.answers.summary import summary
from coord_detect.model.checkpoints import AP
from coord_eval import AnswerSettings, score
from coord_trainer.evaluation import score as scoring
from coord_trainer.evaluation.run_sections import _logged
from coord_trainer.evaluation.score import headline, run_sections

MANIFEST = {
    "seed": 7,
    "steps": 1200,
    "training_seconds": 495.7,
    "parameters": {"all": 1_697_904, "trained": 443_328, "offsets": 96_192},
    "data": {"train": {"images": 6000, "digest": "2428e94421146a47", "problems": 3}},
    "fingerprint": "4f37923a8bce8e0a",
    "git": {"revision": "451463c589fc3c0776684e5ab5e4782b0ba4d36e", "changed": True},
    "versions": {"torch": "2.15.0"},
}


def run_section(folder, manifest):
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (section,) = run_sections(folder)
    assert section.title == "Run"
    return section.html


def test_run_section_gives_the_facts_of_the_manifest(tmp_path):
    html = run_section(tmp_path, MANIFEST)
    for fact in (
        "443,328 of 1,697,904 (26.1%), 96,192 of them coordinate offsets<",
        "1,200 in 496 s",
        "6,000, digest 2428e94421146a47; 3 records left out",
        "4f37923a8bce8e0a",
        "451463c589fc with changes",
        "torch 2.15.0",
    ):
        assert fact in html
    without_offsets = {"parameters": MANIFEST["parameters"] | {"offsets": 0}}
    assert "443,328 of 1,697,904 (26.1%)<" in run_section(tmp_path, MANIFEST | without_offsets)


def test_run_section_of_a_short_manifest_is_short(tmp_path):
    assert run_sections(tmp_path) == []
    html = run_section(tmp_path, {"seed": 0, "git": None, "versions": {}})
    assert "parameters" not in html and "revision" not in html


def test_training_section_draws_the_terms_that_were_logged(tmp_path):
    lines = [{"step": step, "train_total_loss": 3.0 / step, "train_text_loss": 0.0} for step in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (section,) = run_sections(tmp_path)
    assert section.title == "Training" and "<svg" in section.html
    assert ">total<" in section.html and ">text<" not in section.html
    assert "evaluation images" not in section.html and "Seconds per step" not in section.html
    (tmp_path / "metrics.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert "nothing to draw" in run_sections(tmp_path)[0].html


def test_a_score_of_0_is_drawn_and_a_term_of_0_is_not():
    lines = [{"step": 1, AP: 0.0, "train_text_loss": 0.0}, {"step": 2, AP: 0.5, "train_text_loss": 0.25}, {"step": 3}]
    assert _logged([AP, "train_text_loss"], lines) == [[(1, 0.0), (2, 0.5)], [(2, 0.25)]]


def test_training_section_shows_the_evaluation_loss(tmp_path):
    lines = []
    for step, loss in enumerate((2.91, 3.1, 3.3, 3.62), start=1):
        lines += [{"step": step, "train_total_loss": 3.0 / step}, {"step": step, "eval_total_loss": loss}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    html = run_sections(tmp_path)[0].html
    assert "dashed: on the evaluation images" in html


def test_run_section_states_steps_and_seconds_of_both_parts(tmp_path):
    html = run_section(tmp_path, MANIFEST | {"resumed_from": {"steps": 500, "training_seconds": 200.4}})
    assert "1,200 in 496 s; 500 in 200 s before it was resumed" in html


def test_run_section_states_proportions_of_several_sources_and_what_was_seen(tmp_path):
    sources = [
        {"name": "cells", "kind": "images", "records": 1200, "share": 0.75, "digest": "ab"},
        {"name": "talk", "kind": "conversations", "records": 80, "share": 0.25, "digest": "cd"},
    ]
    data = {"train": MANIFEST["data"]["train"] | {"sources": sources}}
    html = run_section(tmp_path, MANIFEST | {"data": data, "samples_seen": {"cells": 3000, "talk": 1001}})
    assert "1,200 images, 75.0% of the samples, digest ab; 3,000 samples seen" in html
    assert "80 conversations, 25.0% of the samples, digest cd; 1,001 samples seen" in html
    assert "source cells" not in run_section(tmp_path, MANIFEST)
    html = run_section(tmp_path, MANIFEST | {"data": data, "samples_seen": {"cells": 0}})
    assert "digest ab; 0 samples seen" in html and "digest cd<" in html  # none is told where it is known


def test_checkpoints_of_shapes_are_compared_by_their_own_measure():
    """A point said five bins beside its place is found, though the boxes around the two do not overlap."""
    shape = {"type": "point", "coordinates": [0.25, 0.5]}
    images = [Instance(image="a.png", image_id=1, width=64, height=64, objects=[{"desc": "cat", "geometry": shape}])]
    text = encode_target(images[0], geometry="point").replace("coord_250|", "coord_255|")
    answer = {"image_id": 1, "text": text, "finish_reason": "stop"}
    found = score(images, [answer], answers=AnswerSettings(geometry="point"))
    assert headline(found) == pytest.approx({"AP": 1.0, "AP50": 1.0}) and "mean IoU" not in " ".join(summary(found))
    boxes = score(images, [answer])
    assert headline(boxes) == {"AP": boxes.coco["AP"], "AP50": boxes.coco["AP50"]}
    assert "mean IoU" in " ".join(summary(boxes))


@pytest.mark.parametrize(
    ("limit", "beyond", "problems", "told"),
    [(None, 15, 2, ["15 objects beyond data.max_objects=5", "2 refused records"]),
     (3, 5, 0, ["5 objects beyond data.max_objects=5"]), (1, 4, 1, ["4 objects beyond", "1 refused record,"]),
     (0, 15, 0, ["15 objects"])],
)  # fmt: skip
def test_what_is_scored_and_told_has_the_options_and_the_limit_of_the_run(monkeypatch, limit, beyond, problems, told):
    """Answers of a file may be diagnosed; those of a run that trains are not, each time anew."""
    limit = limit or None
    config = tiny_config(data={"max_objects": 5, "order": "given"}, evaluation={"limit": limit})
    counts = np.array([9, 2, 6, 15])
    images = SimpleNamespace(target_counts=counts, problems=["p"] * problems, ground_truth=lambda most: ("truth", most))
    calls = []

    class Found(SimpleNamespace):
        def with_notes(self, before):
            return before

    monkeypatch.setattr(scoring, "score", lambda *given, **options: calls.append((given, options)) or Found())
    decoding = config.evaluation.decoding[0]
    for predictions, diagnose in ((Path("a.jsonl"), None), ([], False)):
        notes = scoring.score_predictions(config, predictions, images, decoding)
        (given, options) = calls.pop()
        assert given == (("truth", limit), predictions) and options["report"].diagnose is diagnose
        assert options["answers"] == scoring.answer_settings(config, decoding)
        assert (options["ceiling"].markers, options["ceiling"].order) == (config.data.markers, "given")
        assert len(notes) == len(told) and all(part in note for part, note in zip(told, notes, strict=True))
        assert scoring._beyond_cap(config, images) == beyond
