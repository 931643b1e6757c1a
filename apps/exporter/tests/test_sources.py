"""What a user may name: hub ids in the cache, and the folders of training runs."""

import json
import shutil

import pytest
from huggingface_hub import constants
from tiny_checkpoint import link_base, merge_quietly

from coord_exporter import InputError
from coord_exporter.adapter import open_adapter
from coord_exporter.card import write_card
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.sources import find_adapter, find_folder


@pytest.fixture
def cached(bases, tmp_path, monkeypatch):
    """A hub id whose snapshot lies in a cache of its own."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = link_base(bases(False), tmp_path / "cache" / "models--some--base")
    (snapshot / "README.md").write_text("---\nlicense: apache-2.0\n---\nThe base's own card.\n")
    (tmp_path / "cache" / "models--some--base" / "refs").mkdir()
    (tmp_path / "cache" / "models--some--base" / "refs" / "main").write_text(snapshot.name)
    return snapshot


@pytest.fixture
def run(adapters, tmp_path):
    """The folder of a training run with three checkpoints, the last of them incomplete."""
    folder = tmp_path / "runs" / "mine"
    for steps in (5, 10, 15):
        checkpoint = shutil.copytree(adapters / "offsets", folder / "checkpoints" / f"checkpoint-{steps}")
        files = {path.name: path.stat().st_size + (steps == 15) for path in checkpoint.iterdir()}
        (checkpoint / "complete.json").write_text(json.dumps(files))
    facts = {"checkpoint": "checkpoints/checkpoint-10", "data": {"train": {"digest": "d1ge57"}}, "seed": 7}
    (folder / "manifest.json").write_text(json.dumps(facts))
    (folder / "evaluation.json").write_text(json.dumps({"coco": {"AP": 0.4375, "AP50": 0.5}}))
    return folder


def test_a_hub_id_is_found_in_the_cache_and_nowhere_else(cached):
    assert find_folder("some/base") == cached
    with pytest.raises(InputError, match=r"some/other: no folder of this name, .*: hf download some/other"):
        find_folder("some/other")


def test_a_run_stands_for_its_last_complete_checkpoint_or_its_best(run):
    folder, chosen = find_adapter(run)
    assert folder.name == "checkpoint-10" and chosen == f"{run}: a training run; its checkpoint-10 is merged, the last"
    rows = [{"step": 5, "reading": "greedy", "AP": 0.5}, {"step": 10, "reading": "greedy", "AP": 0.4}]
    (run / "convergence.json").write_text(json.dumps(rows))
    folder, chosen = find_adapter(run / "checkpoints" / "..")
    assert folder.name == "checkpoint-5" and chosen.endswith("the best by AP, 0.500")
    assert find_adapter(folder) == (folder, None)
    shutil.rmtree(run / "checkpoints" / "checkpoint-5")
    shutil.rmtree(run / "checkpoints" / "checkpoint-10")
    with pytest.raises(InputError, match="a training run without a complete checkpoint"):
        find_adapter(run)


def test_merge_of_a_run_into_a_cached_base_writes_a_card_with_the_provenance(cached, run, tmp_path):
    report = merge_quietly("some/base", run, tmp_path / "out")
    assert any("its checkpoint-10 is merged" in warning for warning in report.warnings)
    card = (tmp_path / "out" / "README.md").read_text()
    head, body = card.removeprefix("---\n").split("\n---\n", 1)
    assert "license: apache-2.0" in head and "base_model: some/base" in head
    for line in ("base | some/base", "train data digest | d1ge57", "seed | 7", "AP | 0.438", "fingerprint | "):
        assert f"| {line}" in body
    assert (tmp_path / "out" / "README.base.md").read_text().endswith("The base's own card.\n")
    merge_quietly("some/base", run / "checkpoints" / "checkpoint-5", tmp_path / "earlier")
    assert "AP |" not in (tmp_path / "earlier" / "README.md").read_text()  # the scores are another checkpoint's


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("evaluation: {pictures: train}", "On images that it was trained on, which says nothing of others."),
        ("evaluation: {pictures: heldout}", "On held-out images."),
        ("evaluation:", "On images that the run names."),
        ("evaluation: [train]", "On images that the run names."),
        ("[", "On images that the run names."),
        (None, "On images that the run names."),
    ],
)
def test_card_says_on_which_images_it_was_scored_and_where_nothing_was_measured(run, cached, settings, told):
    scores = {"coco": {"AP": 0.4375, "APl": -1.0}, "mean_iou": 0.25, "ceiling": {"AP": 0.9975}}
    (run / "evaluation.json").write_text(json.dumps(scores | {"format": {"answers": 30, "parsed": 2}}))
    if settings is not None:
        (run / "config.yaml").write_text(settings)
    adapter = open_adapter(run / "checkpoints" / "checkpoint-10")
    card = write_card(open_checkpoint(cached), "some/base", adapter, {})
    assert told in card
    rows = ["| AP | 0.438 |", "| APl | nothing to measure |", "| mean IoU | 0.250 |"]
    rows += ["| quantisation ceiling, AP | 0.998 |", "| answers that parse | 2 of 30 |"]
    assert "\n".join(rows) in card


@pytest.mark.parametrize(
    "text", ["no block", "---\n: [\n---\nbroken", "---\n- a\n---\nlist", "", "---\nlicense: mit\n"]
)
def test_card_of_the_base_that_cannot_be_read_states_nothing(files, text):
    (files / "base" / "README.md").write_text(text)
    merge_quietly(files / "base", files / "adapter", files / "out")
    assert "licence of the base | not stated" in (files / "out" / "README.md").read_text()
