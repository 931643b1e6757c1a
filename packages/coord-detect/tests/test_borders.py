"""Borders that settings, checkpoints, sides and workers state, drawn at equality itself."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from coord_codec import InputError
from coord_detect.detection import ray_engine
from coord_detect.detection.arguments import check_request
from coord_detect.model.checkpoints import AP, is_finished
from coord_detect.served.request import Request
from coord_detect.served.sent_image import SentSides
from coord_detect.settings.record import Settings


@pytest.mark.parametrize(("most", "is_refused"), [(65536, False), (65535, True)])
def test_limits_of_pixels_may_be_equal(most, is_refused):
    limits = {"min_pixels": 65536, "max_pixels": most}
    if is_refused:
        with pytest.raises(ValidationError, match="must not be above"):
            Settings(data=limits)
    else:
        assert Settings(data=limits).data.max_pixels == most


@pytest.mark.parametrize(
    ("max_steps", "epochs", "patience", "expected"),
    [(None, 3, None, True), (None, 3.5, None, False), (10, 3, None, True), (11, 3, None, False),
     (11, 3, 1, True), (11, 3, 2, False)],
)  # fmt: skip
def test_training_has_ended_at_its_last_step_and_at_the_last_score_of_its_patience(
    tmp_path, max_steps, epochs, patience, expected
):
    scores = [{"step": step, AP: value} for step, value in ((5, 0.5), (10, 0.4))]
    state = {"global_step": 10, "max_steps": 10, "num_train_epochs": 3, "log_history": scores}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert is_finished(tmp_path, max_steps, epochs, patience) == expected


def test_sides_up_to_the_ratio_that_processors_take_are_made():
    sides = SentSides(32, 1024, 1 << 20)
    assert (sides.sides(2000, 10), sides.sides(2010, 10)) == ((1984, 32), (2010, 10))


@pytest.mark.parametrize(
    ("workers", "cores", "share", "expected"),
    [(None, None, None, (2, 1, 1.0)), (None, None, 0.0, (4, 1, 0.0)), (4, None, 0.5, (4, 1, 0.5)), (5, None, 0.5, None),
     (None, 2, 0.0, (2, 2, 0.0)), (None, None, 0.6, (2, 1, 0.6)), (1, None, 2.0, (1, 1, 2.0)), (2, None, 2.0, None)],
)  # fmt: skip
def test_workers_of_ray_are_as_many_as_fit_into_four_cores_and_two_gpus(monkeypatch, workers, cores, share, expected):
    there = {"CPU": 4.0, "GPU": 2.0}
    ray = SimpleNamespace(cluster_resources=lambda: there, exceptions=SimpleNamespace(RayError=RuntimeError))
    monkeypatch.setattr(ray_engine, "import_ray", lambda: ray)
    monkeypatch.setattr(ray_engine, "connect", lambda *_, **__: None)
    request = SimpleNamespace(workers=workers, cores=cores, gpu_share=share)
    if expected is None:
        with pytest.raises(InputError, match="do not fit into a cluster of 4 cores and 2 GPUs"):
            ray_engine._resources(request)
    else:
        assert ray_engine._resources(request) == expected


def test_request_may_take_a_day():
    asked = [Request(None, ("a.png",), Path("out"), endpoints=("http://x/v1",), timeout=t) for t in (86400, 86401)]
    check_request(asked[0])
    with pytest.raises(InputError, match="at most 86400 seconds, found 86401"):
        check_request(asked[1])
