"""Saving a checkpoint on a disk that fills up; which of them is the best."""

import errno
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("swift")


def test_checkpoint_that_the_disk_has_no_room_for_is_removed_and_the_older_one_stays(tmp_path, monkeypatch):
    from swift.trainers import Seq2SeqTrainer

    from coord_codec import RunError
    from coord_detect.model.checkpoints import mark_complete, newest_complete
    from coord_trainer.folder import explain_full_disk
    from coord_trainer.swift.trainer import CoordTrainer, StepTime

    trainer = CoordTrainer.__new__(CoordTrainer)
    trainer.args = SimpleNamespace(output_dir=str(tmp_path), should_save=True, world_size=1, device="cpu")
    trainer._seen_S, trainer._step_time = torch.zeros(1), StepTime()
    trainer._kept_checkpoints = 1
    trainer.state = SimpleNamespace(global_step=4, best_model_checkpoint=None)
    trainer._parts = SimpleNamespace(card=None)
    trainer._step_metrics = {"train": SimpleNamespace(sums=lambda reduce: {})}
    older, half = tmp_path / "checkpoint-2", tmp_path / "checkpoint-4"
    older.mkdir()
    (older / "model.bin").write_bytes(b"1234")
    mark_complete(older)

    def fill(trainer, *words):
        half.mkdir(exist_ok=True)
        (half / "model.bin").write_bytes(b"12")
        raise OSError(errno.ENOSPC, "No space left on device", str(half / "model.bin"))

    monkeypatch.setattr(Seq2SeqTrainer, "_save_checkpoint", fill)
    with pytest.raises(RunError, match=rf"{half}/model.bin: no space left"), explain_full_disk(tmp_path):
        trainer._save_checkpoint(None, None)
    assert not half.exists() and newest_complete(tmp_path) == (older, [])

    # All is written but the list of the files.
    monkeypatch.setattr(Seq2SeqTrainer, "_save_checkpoint", lambda *words: half.mkdir())
    monkeypatch.setattr("coord_trainer.swift.trainer.mark_complete", fill)
    with pytest.raises(OSError, match="No space"):
        trainer._save_checkpoint(None, None)
    assert newest_complete(tmp_path) == (older, [half])  # the older one goes only when the new one is complete


@pytest.mark.parametrize(
    ("name", "metrics", "asked"),
    [
        ("eval_AP", {"eval_AP": 1.0}, True),
        ("AP", {"eval_AP": 1.0}, True),
        ("eval_AP", {"AP": 1.0}, True),
        ("AP", {"eval_loss": 1.0}, False),
        ("loss", {"eval_loss": 1.0, "eval_AP": 1.0}, True),
        (None, {"eval_loss": 1.0}, False),
        ("AP", {}, False),
    ],
)
def test_best_checkpoint_changes_only_where_its_metric_was_measured(monkeypatch, name, metrics, asked):
    from swift.trainers import Seq2SeqTrainer

    from coord_trainer.swift.trainer import CoordTrainer

    trainer = CoordTrainer.__new__(CoordTrainer)
    trainer.args = SimpleNamespace(metric_for_best_model=name)
    monkeypatch.setattr(Seq2SeqTrainer, "_determine_best_metric", lambda *given: True)
    assert trainer._determine_best_metric(metrics, None) is asked
