"""Real photographs learnt by heart through the shipped config: the score must be the quantisation ceiling."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COUNT, STEPS = 2, 24
"""A few of the photographs, each seen at least as often as all 33 are by the configuration."""


@pytest.mark.shared
@pytest.mark.slow
def test_real_photographs_are_learnt_up_to_the_ceiling(shared_dir, tmp_path, forked):
    photographs = shared_dir / "coco_permissive33"
    document = json.loads((photographs / "instances.json").read_text())
    document["images"] = document["images"][:COUNT]
    kept = {image["id"] for image in document["images"]}
    document["annotations"] = [row for row in document["annotations"] if row["image_id"] in kept]
    annotations = tmp_path / "instances.json"
    annotations.write_text(json.dumps(document))
    words = [
        f"data.annotations={annotations}",
        f"data.images={photographs / 'images'}",
        f"run.dir={tmp_path / 'run'}",
        "run.threads=1",  # steady beside other tests
        f"training.max_steps={STEPS}",
        f"training.save_steps={STEPS}",
        f"training.eval_steps={STEPS}",
    ]
    config = ROOT / "configs" / "memorise.yaml"
    done = forked(ROOT / "apps" / "trainer", "train", "-c", config, *words, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memorised: reached" in done.stdout
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["coco"]["AP"] > evaluation["ceiling"]["AP"] - 0.02
    assert evaluation["coco"]["AP50"] >= 0.99
    assert evaluation["format"]["parsed"] == COUNT
    assert evaluation["format"]["dropped"] == {}
    assert "memorised" in (tmp_path / "run" / "report.html").read_text()
