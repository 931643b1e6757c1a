"""Through ms-swift itself: what the model is given, and that the loss is the design's, however a batch is cut."""

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import read_lines, tiny_config

from coord_codec import InputError, encode_target
from coord_detect.answers.generate import prompt_inputs
from coord_detect.model.attention import attend_by_sample, attend_to_whole_rows
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_losses import CoordObjective, ObjectiveConfig
from coord_trainer.swift.open_run import open_run
from coord_trainer.training.head import RowHead, row_selecting_head

pytest.importorskip("swift")


@pytest.mark.parametrize("system", [None, "Name what you see.\nNothing else."])
def test_prompt_is_the_one_that_inference_will_build(opened_run, template, monkeypatch, system):
    settings, run, train, samples = opened_run
    monkeypatch.setattr(template.template_meta, "default_system", system)
    asked = LoadedCheckpoint(run.model, run.processor, run.vocab, system)
    for index in range(len(train)):
        served = prompt_inputs(asked, [train.image(index)], settings.data.prompt)
        sample = samples._make(index)
        start = next(i for i, label in enumerate(sample["labels"]) if label != -100)
        assert sample["input_ids"][:start] == served["input_ids"][0].tolist()
        assert torch.equal(sample["pixel_values"], served["pixel_values"])


def test_supervised_tokens_are_the_target_and_the_end_of_the_turn(opened_run):
    _, run, train, samples = opened_run
    for index, instance in enumerate(train.instances):
        learnt = [label for label in samples[index]["labels"] if label != -100]
        text = run.processor.tokenizer.decode(learnt)
        assert text.rstrip("\n") == encode_target(instance, markers="obj") + "<|im_end|>"
        assert samples[index]["coord_boxes"] == [pytest.approx(found.bbox) for found in _ordered(instance)]
        assert len(samples[index]["coord_layout"].objects) == len(instance.objects)


def _ordered(instance):
    return sorted(instance.objects, key=lambda found: (found.bbox[1], found.bbox[0]))


FORWARD = (
    *("input_ids", "pixel_values", "image_grid_thw", "mm_token_type_ids", "position_ids"),
    *("cu_seq_lens_q", "max_length_q"),
)
MIXED = {"coord_soft_ce_w1": {"enabled": True}, "coord_objective": {"use_coord_ce": True}}
GROUP_B = {"coord_objective": {"use_coordexp_loss": True, "use_geom_loss": True}}


@pytest.mark.parametrize(
    ("settings", "samples", "ranks", "expected"),
    [
        ((0, 3, 1, 2), 8, 1, 12),
        ((0, 2, 2, 2), 9, 1, 6),  # five batches: the last step of an epoch has one
        ((0, 1, 4, 2), 3, 1, 1),
        ((0, 0.5, 1, 2), 8, 1, 2),
        ((0, 2.5, 1, 1), 3, 1, 8),
        ((0, 1, 1, 2), 8, 2, 2),
        ((None, 1, 1, 2), 8, 1, 4),
        ((-1, 1, 1, 2), 8, 1, 4),
        ((7, 1, 1, 2), 8, 1, 7),
    ],
)
def test_steps_are_those_of_transformers_trainer(opened_run, monkeypatch, settings, samples, ranks, expected):
    from coord_trainer.swift import open_run as module

    most, epochs, accumulate, size = settings
    arguments = {"max_steps": most, "num_train_epochs": epochs, "gradient_accumulation_steps": accumulate}
    arguments |= {"per_device_train_batch_size": size}
    run = replace(opened_run[1], pipeline=SimpleNamespace(args=SimpleNamespace(**arguments)))
    monkeypatch.setattr(module, "world_size", lambda: ranks)
    assert run.steps_for(samples) == expected
    assert run.samples_per_step == size * accumulate * ranks


def test_training_is_given_what_the_run_says_and_nothing_of_an_earlier_one(opened_run, tmp_path, monkeypatch):
    """swift's arguments live on: a call without a checkpoint or workers does not have those of the call before."""
    config, opened, train, samples = opened_run
    given = SimpleNamespace(resume_from_checkpoint="older", dataloader_num_workers=9, dataloader_persistent_workers=9)
    ended = {"last_model_checkpoint": None, "global_step": 4}
    pipeline = SimpleNamespace(**vars(opened.pipeline))
    pipeline.args = SimpleNamespace(**vars(opened.pipeline.args) | {"training_args": given})
    pipeline.main = lambda: pipeline.parts.seen.append(5) or ended
    run = replace(opened, pipeline=pipeline, folder=tmp_path)
    result = run.train(samples, None)
    assert (result.checkpoint, result.steps, result.seen) == (None, 4, (5,))
    assert vars(given) == {
        "resume_from_checkpoint": None,
        "dataloader_num_workers": 9,
        "dataloader_persistent_workers": 9,
    }
    parts = pipeline.parts
    assert pipeline.datasets == (samples, None) and parts.sources == 1 and parts.answers is None
    assert parts.vision == (run.family.vision_tower, run.family.merger)
    assert parts.card.names == tuple(sorted({named.desc for one in train.instances for named in one.objects}))
    assert parts.objective.vocab is run.vocab and (parts.packing, parts.fused, parts.gradient_norms) == (
        config.data.packing,
        config.model.fused_head,
        config.run.gradient_norms,
    )
    changed = {
        "data": config.data.model_copy(update={"packing": True}),
        "model": config.model.model_copy(update={"fused_head": not config.model.fused_head}),
        "run": config.run.model_copy(update={"gradient_norms": True}),
    }
    run = replace(run, config=config.model_copy(update=changed))
    ended["last_model_checkpoint"] = "there"
    for varies in (False, True):
        mixture = SimpleNamespace(varies=varies, sources=samples.mixture.sources, image_sets=samples.mixture.image_sets)
        of_run = SimpleNamespace(mixture=mixture)
        result = run.train(of_run, train, resume_from=Path("before"), workers=3, callbacks=[1], answers="asked")
        assert (str(result.checkpoint), given.resume_from_checkpoint) == ("there", "before")
        assert (given.dataloader_num_workers, given.dataloader_persistent_workers) == (3, not varies)
        parts = pipeline.parts
        assert pipeline.datasets == (of_run, train) and (parts.callbacks, parts.answers) == ((1,), "asked")
        assert (parts.packing, parts.fused, parts.gradient_norms) == (True, not config.model.fused_head, True)


def test_card_has_the_names_by_their_class_ids_unless_they_are_too_many(opened_run, monkeypatch):
    run = opened_run[1]
    sets = [SimpleNamespace(classes=("z", "a"), words={"x"}), SimpleNamespace(classes=(), words={"c", "b", "a"})]
    mixture = SimpleNamespace(image_sets=sets)
    for most, names in ((5, ("z", "a", "b", "c")), (4, ("z", "a", "b", "c")), (3, ())):
        monkeypatch.setattr("coord_trainer.swift.open_run.MOST_NAMES", most)
        assert run.card(mixture).names == names


@pytest.mark.parametrize(
    ("sections", "cannot", "told"),
    [
        ({"data": {"packing": True}}, {"packing": "no"}, r"data\.packing"),
        ({"data": {"packing": False}}, {"packing": "no"}, None),
        ({"data": {"max_side_ratio": 201}}, {}, r"data\.max_side_ratio"),
        ({"data": {"max_side_ratio": None}}, {}, r"data\.max_side_ratio"),
        ({"data": {"max_side_ratio": 200}}, {}, None),
        ({}, {"pixels": "no", "packing": "no", "merger": "no"}, None),
        ({"data": {"min_pixels": 4096}}, {"pixels": "no"}, r"data\.min_pixels"),
        ({"data": {"max_pixels": 4096}}, {"pixels": "no"}, r"data\.max_pixels"),
        ({"data": {"max_pixels": 4096}}, {}, None),
        ({"training": {"tuner_type": "lora", "aligner_lr": 1e-4}}, {"merger": "no"}, r"training\.aligner_lr"),
        ({"training": {"tuner_type": "lora"}}, {"merger": "no"}, None),
        ({"training": {"tuner_type": "full", "aligner_lr": 1e-4}}, {"merger": "no"}, None),
    ],
)
def test_what_a_family_cannot_do_is_refused_and_nothing_else(opened_run, sections, cannot, told):
    from coord_trainer.swift.open_run import _refuse_impossible

    family = replace(opened_run[1].family, cannot=cannot, max_side_ratio=200)
    if told is None:
        _refuse_impossible(tiny_config(**sections), family)
        return
    with pytest.raises(InputError, match=told):
        _refuse_impossible(tiny_config(**sections), family)


def test_group_a_is_hugging_faces_loss_on_the_real_model(opened_run):
    from coord_trainer.swift.trainer import active_head

    _, run, _, samples = opened_run
    model = run.model
    batch = run.collate([samples[i] for i in range(4)])
    labels, slots = batch.pop("labels"), batch.pop("coord_slots")
    batch = {name: value for name, value in batch.items() if name in (*FORWARD, "attention_mask")}
    rows = RowHead(CoordObjective(ObjectiveConfig.group_a(), run.vocab), labels, slots, want_diagnostics=False)
    with torch.no_grad():
        with row_selecting_head(model, active_head(model), rows):
            found = rows.rejoin(model(**batch).logits).total()
        expected = model(**batch, labels=labels).loss
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert slots.fallbacks == slots.skipped == 0


@pytest.fixture
def template(opened_run):
    """The template of the open run; settings that a test makes are taken back."""
    chosen = opened_run[1].pipeline.template
    before = {name: getattr(chosen, name) for name in ("padding_side", "max_length", "truncation_strategy")}
    yield chosen
    for name, value in before.items():
        setattr(chosen, name, value)


def box_loss(run, batch):
    """The loss of group C on a batch, and how many objects it has."""
    from coord_trainer.swift.trainer import active_head

    labels, slots = batch["labels"], batch["coord_slots"]
    given = {name: batch[name] for name in (*FORWARD, "attention_mask") if name in batch}
    rows = RowHead(CoordObjective(ObjectiveConfig.group_c(), run.vocab), labels, slots, want_diagnostics=False)
    with torch.no_grad(), row_selecting_head(run.model.eval(), active_head(run.model), rows):
        output = rows.rejoin(run.model(**given).logits)
    return {name: float(term.sum) for name, term in output.terms.items()}, slots


def test_left_padding_has_the_objects_and_the_loss_of_right_padding(opened_run, template):
    _, run, _, samples = opened_run
    loss, slots = {}, {}
    for side in ("right", "left"):
        template.padding_side = side
        batch = run.collate([samples[i] for i in range(4)])
        assert bool((batch["attention_mask"][:, 0] == 0).any()) is (side == "left")  # the samples differ in length
        loss[side], slots[side] = box_loss(run, batch)
    assert torch.equal(slots["left"].boxes_M4, slots["right"].boxes_M4)
    assert torch.equal(slots["left"].rows_M4, slots["right"].rows_M4)
    assert slots["left"].fallbacks == slots["left"].skipped == 0
    assert loss["left"] == pytest.approx(loss["right"], rel=1e-5)


@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_of_a_batch_are_those_of_transformers_row_by_row(opened_run, template, side):
    _, run, _, samples = opened_run
    template.padding_side = side
    batch = run.collate([samples[i] for i in (0, 1, 2, 3, 0, 2)])
    asked = ("input_ids", "mm_token_type_ids", "image_grid_thw", "attention_mask")
    expected, _ = run.model.model.get_rope_index(**{name: batch[name] for name in asked})
    assert torch.equal(batch["position_ids"], expected)
    assert len({tuple(row) for row in batch["attention_mask"].tolist()}) > 1  # the samples differ in length


@pytest.mark.parametrize("side", ["left", "right"])
def test_truncated_samples_keep_the_true_boxes_of_what_is_left(opened_run, template, side):
    _, run, train, samples = opened_run
    index = max(range(len(train)), key=lambda i: len(train.instances[i].objects))
    boxes = [list(found.bbox) for found in _ordered(train.instances[index])]
    assert len(boxes) > 1
    template.max_length = len(samples[index]["input_ids"]) - (16 if side == "right" else 0)
    if side == "left":  # until the first object is cut
        answer = sum(label != -100 for label in samples[index]["labels"])
        template.max_length = samples[index]["input_ids"].count(run.model.config.image_token_id) + answer - 6
    template.truncation_strategy = side
    sample = samples._make(index)
    kept = len(sample["coord_layout"].objects)
    assert 0 < kept < len(boxes)
    slots = run.collate([sample])["coord_slots"]
    expected = boxes[-kept:] if side == "left" else boxes[:kept]
    torch.testing.assert_close(slots.boxes_M4, torch.tensor(expected, dtype=torch.float64))
    assert slots.fallbacks == 0


@pytest.mark.parametrize("skip", [True, False])
def test_normalize_bbox_leaves_boxes_alone_unless_told_otherwise(template, skip):
    from types import SimpleNamespace

    from coord_trainer.swift.template import apply_coord_template_adapter

    inputs = SimpleNamespace(objects={"bbox": [[10, 20, 30, 40]], "width": [100], "height": [200]}, images=[])
    try:
        apply_coord_template_adapter(coord_tokens=True, skip_bbox_norm=skip)
        template.normalize_bbox(inputs)
    finally:
        apply_coord_template_adapter()
    assert inputs.objects["bbox"] == [[10, 20, 30, 40] if skip else [100, 100, 300, 200]]


@pytest.fixture(scope="module")
def one_step(opened_run, tiny_model, tmp_path_factory):
    """Run one optimizer step with a batch of 4 cut as asked; returns the log line and the new weights."""
    from coord_trainer.training_stage import train_model

    _, _, train, _ = opened_run

    @cache
    def step(batch_size, accumulate, objective="mixed", packing=False):
        folder = tmp_path_factory.mktemp("step")
        config = tiny_config(
            custom={"mixed": MIXED, "b": GROUP_B}[objective],
            data={"packing": packing},
            training={
                "per_device_train_batch_size": batch_size,
                "gradient_accumulation_steps": accumulate,
                "max_grad_norm": 0.0,
                "optim": "sgd",  # Adam would make a full step of a rounding error
                "learning_rate": 0.05,
            },
        )
        checkpoint = train_model(config, folder, str(tiny_model), train, None).checkpoint
        return read_lines(folder)[0], load_file(checkpoint / "model.safetensors")

    return step


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mixed", "b"])
def test_accumulating_four_batches_of_one_is_one_batch_of_four(one_step, objective):
    (whole, whole_weights), (cut, cut_weights) = one_step(4, 1, objective), one_step(1, 4, objective)
    for name, value in whole.items():
        # swift's own `loss` is the sum over micro-batches of the same thing; ours must agree as well.
        if name not in {"epoch"}:
            assert cut[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
    assert whole["loss"] == pytest.approx(whole["train_total_loss"], rel=1e-5)
    assert all(torch.allclose(whole_weights[k], cut_weights[k], atol=1e-5) for k in whole_weights)


def test_answers_are_generated_with_whole_rows(opened_run):
    model, ids = opened_run[1].model, torch.ones(2, 3, dtype=torch.long)
    try:
        attend_by_sample(model, packed=True)
        with attend_to_whole_rows(model):
            model(input_ids=ids)
        with pytest.raises(ValueError, match="packed rows alone"):
            model(input_ids=ids)
    finally:
        model.set_attn_implementation("sdpa")


@pytest.mark.slow
def test_packed_batch_is_a_padded_one(one_step):
    (padded, padded_weights), (packed, packed_weights) = one_step(4, 1, "mixed"), one_step(4, 1, packing=True)
    for name, value in padded.items():
        assert packed[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
    assert all(torch.allclose(padded_weights[k], packed_weights[k], atol=1e-5) for k in padded_weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [("model.safetensors", None), ("model.safetensors", b"\x08\x00"), ("tokenizer.json", b"{")],
    ids=["missing", "truncated", "no_json"],
)
def test_damaged_checkpoint_is_named_in_one_line(opened_run, tmp_path, name, content):
    """As an interrupted download or copy leaves it."""
    config, run, _, _ = opened_run
    shutil.copytree(run.pipeline.args.model, tmp_path / "base")
    damaged = tmp_path / "base" / name
    damaged.unlink()
    if content is not None:
        damaged.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.path: .*base is not a complete checkpoint \("):
        open_run(config, tmp_path, str(tmp_path / "base"), evaluates=False)
