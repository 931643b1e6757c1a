"""The verdict on memorising: reached, or not reached with every reason that the run folder shows."""

import json
from types import SimpleNamespace

import pytest

from coord_trainer.config.run_config import check_run_config
from coord_trainer.evaluation import verdict as verdicts
from coord_trainer.evaluation.verdict import TOLERANCE, memorising_verdict

CONFLICT = {"code": "conflicting_boxes", "message": "1 pair", "evidence": "a.png and b.png", "fix": "keep one"}


def verdict(folder, ap=0.5, *, ap50=0.6, ceiling=0.98, truncated=0, beyond=0, findings=(), loss=0.001, **data):
    (folder / "findings.json").write_text(json.dumps(list(findings)))
    lines = [{"step": 1, "train_text_loss": 4.0}, {"step": 40, "train_text_loss": loss}, {"step": 40, "eval_AP": ap}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts = {"steps": 40, "samples_seen": {"train": 240}, "data": {"train": {"images": 6}}}
    (folder / "manifest.json").write_text(json.dumps(facts))
    config = check_run_config({"custom": {"coord_objective": {"use_coord_ce": True}}, "data": data}, "test")
    ceilings = {} if ceiling is None else {"AP": ceiling, "AP50": 1.0}
    scored = SimpleNamespace(
        shapes={}, coco={"AP": ap, "AP50": ap50}, ceiling=ceilings, format={"truncated": truncated}
    )
    return memorising_verdict(config, scored, folder, beyond)


def test_ceiling_is_reached_within_the_tolerance(tmp_path):
    for ap in (0.98 - TOLERANCE, 0.98, 0.99):
        assert verdict(tmp_path, ap, findings=[CONFLICT]).startswith(f"memorised: reached (AP {ap:.3f}, ")
    assert "not reached" in verdict(tmp_path, 0.95)
    assert "not known" in verdict(tmp_path, ceiling=None)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"findings": [CONFLICT]}, "a.png and b.png; keep one"),
        ({"beyond": 1}, "1 object beyond data.max_objects"),
        ({"truncated": 2}, "evaluation.max_new_tokens"),
        ({"loss": 0.431}, "0.43 per token"),
        ({"augment": {"flip": 0.5}}, "data.augment"),
        ({"ap50": 0.995}, "every object is found (AP50 0.995)"),
    ],
)
def test_verdict_names_the_reason_alone(tmp_path, given, named):
    line = verdict(tmp_path, **given)
    assert named in line and line.count("because") == 1 and "none of the known" not in line
    assert "none of the known" in verdict(tmp_path, loss=verdicts._LEARNT)


def test_verdict_names_all_reasons_and_how_often_an_image_was_seen(tmp_path):
    line = verdict(tmp_path, beyond=3, loss=0.2)
    assert line.count("because") == 2 and "40 steps" in line and "seen 40 times" in line
