"""A whole run on a simulated device: DoRA with offsets on packed rows, accumulated, scored, saved, loaded and asked.

`train_and_score` goes through ms-swift's trainer as on a machine with a GPU: the model is moved, batches are copied,
checkpoints are read and written. The same run on the CPU says what its numbers have to be.
"""

import json
from collections import Counter

import pytest
import torch
from simulated_device import SimulatedDevice, on_device

pytest.importorskip("swift")
pytest.importorskip("peft")

STEPS, MICRO_BATCHES, LIMIT = 2, 2, 8
CONFIG = {
    "data": {"markers": "obj", "packing": True, "shapes": {"train": 8, "heldout": 1}},
    "custom": {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
    "model": {"tiny": {"hidden": 32, "heads": 4, "ffn": 48, "vision_hidden": 32, "layers": 1, "vision_layers": 1}},
    "run": {"threads": 1, "gradient_norms": True},
    "evaluation": {
        "ap_steps": STEPS,
        "ap_images": 1,
        "max_new_tokens": LIMIT,
        "views": ["mirror"],
        "decoding": [{"grammar": "names", "boxes": "best_iou"}],
    },
    "training": {
        "tuner_type": "lora",
        "use_dora": True,
        "target_modules": ["all-linear"],
        "lora_dropout": 0.0,
        "max_steps": STEPS,
        "save_steps": STEPS,
        "eval_steps": STEPS,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "logging_steps": 1,
        "report_to": [],
    },
}


def whole_run(folder):
    from coord_trainer import train_and_score
    from coord_trainer.config.run_config import check_run_config

    result = train_and_score(check_run_config(CONFIG, "test"), folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    answers = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    return result, lines, answers


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The run on the CPU, the run on the simulated device, and the device."""
    expected = whole_run(tmp_path_factory.mktemp("cpu") / "run")
    with SimulatedDevice() as device:
        found = whole_run(tmp_path_factory.mktemp("device") / "run")
    return expected, found, device


@pytest.mark.slow
def test_the_whole_run_mixes_nothing_and_has_the_numbers_of_the_cpu(runs):
    (_, expected, answers), (_, found, found_answers), device = runs
    assert not device.mismatches
    assert len(found) == len(expected) == STEPS + 2
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in other.keys() - {"eval_runtime", "seconds_per_step"} if "train_runtime" not in other else ():
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name
    assert {"grad_norm", "grad_norm/soft_ce", "coord_diag/w1", "coord_diag/coord_entropy"} <= found[0].keys()
    assert [one["text"] for one in found_answers] == [one["text"] for one in answers]
    assert [one["views"][0]["text"] for one in found_answers] == [one["views"][0]["text"] for one in answers]


@pytest.mark.slow
def test_waits_of_a_run_are_as_few_as_stated(runs):
    _, _, device = runs
    waits = Counter()
    for (_, line), count in device.waits_of("coord_").items():
        waits[line.rpartition(":")[0]] += count
    batches = STEPS * MICRO_BATCHES
    evaluated = 1  # batch of evaluation losses
    answered = 2  # batches of answers: during training, and after it
    of_a_batch = {
        "coord_losses/batch.py": batches + evaluated,  # sizes of rows, and all checks
        # Lengths of samples and images, which only sdpa needs: the run is in float32.
        "coord_detect/model/attention.py": 2 * (batches + evaluated) + answered,
        # Whether the loss is finite, before its gradient is added; whether a step's gradient is, which swift waits for.
        "coord_trainer/swift/trainer.py": STEPS + 2,  # and samples seen, in a checkpoint and at the end
        "coord_trainer/training/faults.py": batches,
        "coord_trainer/training/metrics.py": batches,  # gradient norms of the terms, which were asked for
        "coord_losses/hf/metrics.py": STEPS + evaluated + 1,  # of a log line, and of a checkpoint
        "coord_detect/model/token_statistics.py": answered,  # and what was recorded of them
    }
    assert {name: waits.pop(name, 0) for name in of_a_batch} == of_a_batch
    # The tokens of each pass are read at once; ids are read once, and an adapter when it is loaded.
    assert waits.pop("coord_detect/speed/decode.py") <= answered * LIMIT
    assert waits.keys() == {"coord_losses/fused/head.py", "coord_adapter/tables.py"}
    assert waits["coord_losses/fused/head.py"] == 1


@pytest.fixture(scope="module")
def detector(runs):
    """The checkpoint that was trained on the device, loaded on it again."""
    from coord_trainer import Detector
    from coord_trainer.config.run_config import check_run_config

    folder = runs[1][0].folder
    heldout = [json.loads(line) for line in (folder / "data" / "heldout.jsonl").read_text().splitlines()]
    names = {item["desc"] for record in heldout for item in record["objects"]}
    config = check_run_config({"evaluation": CONFIG["evaluation"]}, "test", trains=False)
    with SimulatedDevice() as device:
        loaded = Detector.load(folder, config, names)
    assert not device.mismatches
    return loaded


@pytest.mark.slow
def test_detector_answers_on_the_device_as_the_run_did(runs, detector):
    folder, answers = runs[1][0].folder, runs[1][2]
    paths = [folder / "data" / answer["image"] for answer in answers]
    with SimulatedDevice() as device:
        found = list(detector.predict(paths, progress=False))
    assert not device.mismatches
    assert [one.text for one in found] == [answer["text"] for answer in answers]


@pytest.mark.slow
def test_calibration_is_fitted_to_the_scores_of_the_device(runs, monkeypatch):
    """What is fitted runs on the CPU alone, and two steps of training give it too few hits: it gets a substitute."""
    import coord_eval
    from coord_detect.detection.calibrate import calibrate_model
    from coord_detect.model.card import read_card
    from coord_detect.model.checkpoints import locate_model
    from coord_trainer.config.run_config import check_run_config

    folder, answers = runs[1][0].folder, runs[1][2]
    line = coord_eval.Calibration(((0.0, 0.0), (1.0, 0.5)), "constant", coord_eval.ThresholdCurve((), (), {}))
    scored = []
    score = coord_eval.score
    monkeypatch.setattr(
        coord_eval, "score", lambda truth, records, **how: scored.append(records) or score(truth, records, **how)
    )
    monkeypatch.setattr(coord_eval, "fit_calibration", lambda evaluation, rests_on: line)
    config = check_run_config({"evaluation": CONFIG["evaluation"]}, "test", trains=False)
    with SimulatedDevice() as device:
        calibrate_model(folder, folder / "data" / "heldout.jsonl", None, config, False)
    assert not device.mismatches
    assert [record["text"] for record in scored[0]] == [answer["text"] for answer in answers]
    assert [record["objects"] for record in scored[0]] == [answer["objects"] for answer in answers]
    assert read_card(locate_model(folder)).calibrations


@pytest.mark.slow
def test_baking_on_the_device_leaves_the_logits(detector):
    from coord_adapter import bake_offsets

    model = detector.model.engine.checkpoint.model
    ids = on_device(torch.arange(12)[None])
    with SimulatedDevice() as device, torch.no_grad():
        before = model(input_ids=ids).logits
        baked = bake_offsets(model.merge_and_unload())
        after = baked(input_ids=ids).logits
    assert not device.mismatches
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
