"""Through ms-swift itself: what the model sees, and that the loss is the design's, however a batch is cut."""

import json

import pytest
import torch

from coord_codec import encode_target
from coord_losses import CoordObjective, ObjectiveConfig
from coord_trainer.config_files import check_run_config
from coord_trainer.picture_set import draw_sets
from coord_trainer.pipeline import open_run, sample_set
from coord_trainer.tiny_model import base_checkpoint

pytest.importorskip("swift")


def config(**sections):
    base = {
        "data": {"markers": "obj", "shapes": {"train": 8, "heldout": 2}},
        "custom": {"coord_soft_ce_w1": {"enabled": True}},
        "run": {"threads": 1},
        "training": {"max_steps": 1, "logging_steps": 1, "save_steps": 1, "train_dataloader_shuffle": False},
        "model": {"tiny": {"hidden": 32, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}},
    }
    return check_run_config(
        {key: base.get(key, {}) | sections.get(key, {}) for key in base | sections}, "test"
    )


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swift")
    settings = config()
    train, _ = draw_sets(settings, folder / "data")
    run = open_run(settings, folder, base_checkpoint(settings, folder, train), evaluates=False)
    return settings, run, train, sample_set(settings, run, train)


def test_the_prompt_is_the_one_that_inference_will_build(opened):
    settings, run, train, samples = opened
    processor = run.pipeline.processor
    content = [{"type": "image"}, {"type": "text", "text": settings.data.prompt}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    for index in range(len(train)):
        served = processor(text=[text], images=[train.picture(index)], return_tensors="pt")
        sample = samples[index]
        start = next(i for i, label in enumerate(sample["labels"]) if label != -100)
        assert sample["input_ids"][:start] == served["input_ids"][0].tolist()
        assert torch.equal(sample["pixel_values"], served["pixel_values"])


def test_what_is_learnt_is_the_target_and_the_end_of_the_turn(opened):
    _, run, train, samples = opened
    for index, instance in enumerate(train.instances):
        learnt = [label for label in samples[index]["labels"] if label != -100]
        text = run.pipeline.processor.tokenizer.decode(learnt)
        assert text.rstrip("\n") == encode_target(instance, markers="obj") + "<|im_end|>"
        assert samples[index]["coord_boxes"] == [pytest.approx(found.bbox) for found in _ordered(instance)]
        assert len(samples[index]["coord_layout"].objects) == len(instance.objects)


def _ordered(instance):
    return sorted(instance.objects, key=lambda found: (found.bbox[1], found.bbox[0]))


def test_group_a_is_hugging_faces_loss_on_the_real_model(opened):
    from coord_trainer.collating import collate_samples
    from coord_trainer.row_head import RowHead, row_selecting_head

    _, run, _, samples = opened
    model = run.pipeline.model
    collate = run.pipeline.template.data_collator
    batch = collate_samples([samples[i] for i in range(4)], collate, run.vocab)
    labels, slots = batch.pop("labels"), batch.pop("coord_slots")
    batch = {
        k: v
        for k, v in batch.items()
        if k
        in {
            "input_ids",
            "attention_mask",
            "pixel_values",
            "image_grid_thw",
            "mm_token_type_ids",
            "position_ids",
        }
    }
    rows = RowHead(
        CoordObjective(ObjectiveConfig.group_a(), run.vocab), labels, slots, want_diagnostics=False
    )
    with torch.no_grad():
        with row_selecting_head(model, rows):
            found = rows.rejoin(model(**batch).logits).total()
        expected = model(**batch, labels=labels).loss
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert slots.fallbacks == slots.skipped == 0


@pytest.fixture(scope="module")
def one_step(opened, tmp_path_factory):
    """Run one optimizer step with a batch of 4 cut as asked; returns the log line and the new weights."""
    from safetensors.torch import load_file

    _, _, train, _ = opened

    def step(batch_size, accumulate, custom, packing=False):
        from coord_trainer.training import _train

        folder = tmp_path_factory.mktemp("step")
        training = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulate}
        settings = config(custom=custom, data={"packing": packing})
        settings = settings.model_copy(
            update={
                # Plain gradient steps: Adam would make a full step of a rounding error.
                "training": settings.training
                | training
                | {"max_grad_norm": 0.0, "optim": "sgd", "learning_rate": 0.05}
            }
        )
        checkpoint, _ = _train(settings, folder, base_checkpoint(settings, folder, train), train, None)
        line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
        return line, load_file(checkpoint / "model.safetensors")

    return step


@pytest.mark.parametrize(
    "custom",
    [
        {"coord_soft_ce_w1": {"enabled": True}, "coord_objective": {"use_coord_ce": True}},
        {"coord_objective": {"use_coordexp_loss": True, "use_geom_loss": True}},
    ],
    ids=["mixed", "b"],
)
def test_accumulating_four_batches_of_one_is_one_batch_of_four(one_step, custom):
    (whole, whole_weights), (cut, cut_weights) = one_step(4, 1, custom), one_step(1, 4, custom)
    for name, value in whole.items():
        # swift's own `loss` is the sum over micro-batches of the same thing; ours must agree as well.
        if name not in {"epoch"}:
            assert cut[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
    assert whole["loss"] == pytest.approx(whole["train_total_loss"], rel=1e-5)
    assert all(torch.allclose(whole_weights[k], cut_weights[k], atol=1e-5) for k in whole_weights)


def test_rows_that_are_not_packed_are_refused_where_samples_attend_to_themselves(opened):
    from coord_trainer.packing import attend_by_sample

    model = opened[1].pipeline.model
    try:
        attend_by_sample(model)
        with pytest.raises(ValueError, match="batch size 1"):
            model(input_ids=torch.ones(2, 3, dtype=torch.long))
    finally:
        model.set_attn_implementation("sdpa")


def test_a_packed_batch_is_a_padded_one(one_step):
    custom = {"coord_soft_ce_w1": {"enabled": True}, "coord_objective": {"use_coord_ce": True}}
    (padded, padded_weights), (packed, packed_weights) = (
        one_step(4, 1, custom, packing) for packing in (False, True)
    )
    for name, value in padded.items():
        assert packed[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
    assert all(torch.allclose(padded_weights[k], packed_weights[k], atol=1e-5) for k in padded_weights)


@pytest.mark.parametrize("attention", ["sdpa", "by sample", "eager"])
def test_a_sample_packed_among_others_has_the_logits_it_has_alone(opened, attention):
    from coord_trainer.collating import collate_samples
    from coord_trainer.packing import attend_by_sample

    _, run, _, samples = opened
    model, collate = run.pipeline.model.eval(), run.pipeline.template.data_collator
    known = ("input_ids", "pixel_values", "image_grid_thw", "mm_token_type_ids", "position_ids")
    packed = collate_samples([samples[i] for i in range(3)], collate, run.vocab, packing=True)
    assert "attention_mask" not in packed
    with torch.no_grad():
        attend_by_sample(model) if attention == "by sample" else model.set_attn_implementation(attention)
        together = model(**{name: packed[name] for name in known}, use_cache=False).logits[0]
        model.set_attn_implementation("sdpa")
        start = 0
        for index in range(3):
            alone = collate_samples([samples[index]], collate, run.vocab)
            given = {name: alone[name] for name in (*known[:-1], "attention_mask")}
            expected = model(**given).logits[0]
            torch.testing.assert_close(together[start : start + len(expected)], expected, rtol=0, atol=2e-5)
            assert packed["labels"][0, start] == -100
            start += len(expected)
    boxes = [box for i in range(3) for box in samples[i]["coord_boxes"]]
    torch.testing.assert_close(packed["coord_slots"].boxes_M4, torch.tensor(boxes))
