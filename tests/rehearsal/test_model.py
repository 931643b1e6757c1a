"""A tiny Qwen3-VL on a simulated device: a training step, and answers with every way of decoding."""

from pathlib import Path

import pytest
import torch
from simulated_device import SimulatedDevice, move, on_device, watch_backward

pytest.importorskip("swift")

OURS = ("coord_losses", "coord_codec", "coord_adapter", "coord_detect", "coord_trainer")
LIMIT = 24


@pytest.fixture(scope="module")
def config():
    from coord_trainer.config.run_config import check_run_config

    tiny = {"hidden": 32, "heads": 4, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}
    return check_run_config(
        {
            "data": {"markers": "obj", "shapes": {"train": 8, "heldout": 3}},
            "custom": {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
            "training": {"max_steps": 1},
            "model": {"tiny": tiny},
        },
        "test",
    )


@pytest.fixture(scope="module")
def images(config, tmp_path_factory):
    from coord_trainer.data.shapes import draw_sets

    return draw_sets(config, tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="module")
def folder(config, images, tmp_path_factory):
    from coord_trainer.model.tiny import base_checkpoint

    return base_checkpoint(config, tmp_path_factory.mktemp("model"), images[0])


def opened(folder, config):
    from coord_detect.model.checkpoint import open_checkpoint

    return open_checkpoint(Path(folder), config)


DECODINGS = {
    "free": {"grammar": "none"},
    "names": {"grammar": "names"},
    "best_iou": {"grammar": "markers", "boxes": "best_iou"},
    "json": {"grammar": "names"},
}


def answers(checkpoint, config, images, name, speed="plain"):
    from coord_detect.answers.generate import answer_images
    from coord_detect.settings.decoding import Decoding

    given = [images.image(i) for i in range(3)]
    data = config.data.model_copy(update={"style": "json"} if name == "json" else {})
    return answer_images(checkpoint, given, data, Decoding(**DECODINGS[name]), LIMIT, images.words, speed=speed)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", DECODINGS)
def test_answers_wait_for_the_tokens_of_each_pass_and_twice_a_batch(name, folder, config, images):
    expected = answers(opened(folder, config), config, images[1], name)
    checkpoint = opened(folder, config)
    move(checkpoint.model)
    with SimulatedDevice() as device:
        found = answers(checkpoint, config, images[1], name)
    for f, e in zip(found, expected, strict=True):
        assert f["text"] == e["text"] and f.keys() == e.keys()
        for key in e.keys() & {"coord_logprobs", "coord_expected", "coord_quantiles", "coord_mass", "desc_logprobs"}:
            torch.testing.assert_close(torch.tensor(f[key]), torch.tensor(e[key]), rtol=1e-4, atol=1e-5)
    assert not device.mismatches
    waits = device.waits_of(*OURS)
    # The tokens of each pass, within which nothing waits; before them, for sdpa, the lengths of images, and after them
    # the statistics.
    assert waits.pop(next(key for key in waits if "decode.py" in key[1])) <= LIMIT
    assert sum(waits.values()) == 2, waits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["free", "names"])
def test_drafted_answers_wait_once_a_pass_and_mix_no_devices(name, folder, config, images):
    expected = answers(opened(folder, config), config, images[1], name)
    checkpoint = opened(folder, config)
    move(checkpoint.model)
    with SimulatedDevice() as device:
        found = answers(checkpoint, config, images[1], name, speed="exact")
    assert [answer["text"] for answer in found] == [answer["text"] for answer in expected]
    assert not device.mismatches
    waits = device.waits_of(*OURS)
    assert sum(n for key, n in waits.items() if "decode.py" in key[1]) == 1 + checkpoint.passes[0].count, waits


def step(run, batch, place=lambda x: x):
    """Loss and gradients of one micro-batch through the parts that the trainer is made of."""
    from coord_losses import CoordObjective, ObjectiveConfig
    from coord_losses.hf.metrics import StepMetrics
    from coord_trainer.swift.trainer import active_head
    from coord_trainer.training.head import RowHead, row_selecting_head

    config = ObjectiveConfig.mixed(box_weight=1.0)
    batch = {name: place(x) if isinstance(x, torch.Tensor) else x for name, x in batch.items()}
    slots = batch["coord_slots"].to(batch["labels"].device)
    rows = RowHead(CoordObjective(config, run.vocab), batch["labels"], slots, want_diagnostics=True)
    given = {name: batch[name] for name in FORWARD if name in batch}
    with row_selecting_head(run.model, active_head(run.model), rows):
        output = rows.rejoin(run.model(**given, use_cache=False).logits)
    loss = watch_backward(rows.total(output))
    loss.backward()
    metrics = StepMetrics(output.weights, batch["labels"].device)
    metrics.add(output, rows.diagnostics, slots.fallbacks)
    grads = {name: p.grad.as_subclass(torch.Tensor) for name, p in run.model.named_parameters() if p.grad is not None}
    return loss.detach().as_subclass(torch.Tensor), grads


FORWARD = ("input_ids", "attention_mask", "position_ids", "pixel_values", "image_grid_thw", "mm_token_type_ids")


@pytest.mark.slow
def test_a_micro_batch_waits_once_for_ours_and_mixes_nothing(config, images, folder, tmp_path):
    from coord_trainer.swift.open_run import open_run, sample_set

    def opened_run():
        run = open_run(config, tmp_path, folder, evaluates=False)
        return run, sample_set(config, run, images[0])

    run, samples = opened_run()
    batch = run.collate([samples[i] for i in range(4)])
    expected, grads = step(run, batch)
    run, _ = opened_run()
    move(run.model)
    with SimulatedDevice() as first:  # reads the ids of the offsets
        step(run, batch, on_device)
    run.model.zero_grad()
    with SimulatedDevice() as device:
        found, found_grads = step(run, batch, on_device)
    assert not first.mismatches and not device.mismatches
    ours = device.waits_of(*OURS)
    # Sizes of rows, with all checks; and lengths of images for sdpa, since the model is in float32.
    assert sorted(line.partition(":")[0] for _, line in ours.elements()) == [
        "coord_detect/model/attention.py",
        "coord_losses/batch.py",
    ]
    assert not device.waits_of("transformers/models/qwen3_vl/modeling_qwen3_vl.py:3")  # none in the vision layers
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    assert found_grads.keys() == grads.keys()
    for name, grad in found_grads.items():
        torch.testing.assert_close(grad, grads[name], rtol=1e-3, atol=1e-5, msg=name)
