"""Slots trained along: the tokens are as without them, slots are as in decoding, checkpoints have them."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_run import read_lines, tiny_config

from coord_adapter import SLOTS_FILE, read_slots
from coord_codec import InputError
from coord_losses import CoordObjective, ObjectiveConfig
from coord_losses.hf.head import RowHead
from coord_trainer.model.packed_attention import attend_by_sample
from coord_trainer.model.slot_attention import attend_beside_slots
from coord_trainer.training.head import Head, row_selecting_head
from coord_trainer.training.parallel_boxes import MODULE, Blocks, install_slots

pytest.importorskip("swift")
NOT_OF_THE_MODEL = ("labels", "coord_slots", "coord_samples", "coord_sources", "text_position_ids", "loss_scale")


@pytest.fixture
def opened(opened_run):
    """The opened run with slots of noise in its model, which are taken out afterwards."""
    _, run, train, samples = opened_run
    rows = run.model.get_input_embeddings().weight.detach()
    generator = torch.Generator().manual_seed(1)
    slots = install_slots(run.model, rows.std() * torch.randn(3, rows.shape[1], generator=generator))
    yield run, train, samples, slots
    delattr(run.model, MODULE)
    run.model._keys_to_ignore_on_save = None
    run.model.set_attn_implementation({"text_config": "sdpa"})


def step(opened, chosen, packing=False, beside=True):
    """Return terms and slots' loss of a batch of samples, and the hidden states that the head was given."""
    run, _, samples, slots = opened
    run.model.set_attn_implementation({"text_config": "sdpa"})
    if packing:
        attend_by_sample(run.model)
    if beside:
        attend_beside_slots(run.model)
    config = tiny_config(data={"packing": packing})
    batch = replace(run, config=config).collate([dict(samples[index]) for index in chosen])
    given = {name: value for name, value in batch.items() if name not in NOT_OF_THE_MODEL}
    rows = RowHead(CoordObjective(ObjectiveConfig.mixed(), run.vocab), batch["labels"], batch["coord_slots"])
    blocks, seen = None, []
    if beside:
        blocks = Blocks.of(slots, given, rows.labels, batch["coord_slots"])
        given = blocks.behind(given, run.vocab.first_id)
    head = run.model.lm_head
    hook = head.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    try:
        with row_selecting_head(run.model, Head(head), rows, blocks):
            if beside:
                with blocks.embedded(run.model):
                    sums = run.model(**given, use_cache=False).logits
            else:
                sums = run.model(**given, use_cache=False).logits
    finally:
        hook.remove()
    return sums[0], seen[0], blocks


@pytest.mark.parametrize("packing", [False, True])
def test_tokens_are_as_without_slots(opened, packing):
    """Logits, loss and gradients of the ordinary tokens, of rows that differ in length and number of objects."""
    weight = opened[0].model.model.language_model.layers[0].self_attn.q_proj.weight
    (without, hidden, _), (beside, longer, blocks) = (step(opened, [0, 1, 2], packing, b) for b in (False, True))
    assert longer.shape[1] == hidden.shape[1] + blocks.token_BW.shape[1] > hidden.shape[1]
    torch.testing.assert_close(longer[:, : hidden.shape[1]], hidden, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(beside[:-1], without, rtol=1e-5, atol=1e-5)
    expected, found = (torch.autograd.grad(sums[: len(without)].sum(), weight)[0] for sums in (without, beside))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_packed_slots_are_padded_ones_and_those_of_each_sample_alone(opened):
    rows = opened[3].rows
    (padded, _, _), (packed, _, _) = step(opened, [0, 1, 2]), step(opened, [0, 1, 2], packing=True)
    torch.testing.assert_close(packed[-1], padded[-1])
    torch.testing.assert_close(sum(step(opened, [index])[0][-1] for index in range(3)), padded[-1])
    grads = [torch.autograd.grad(sums[-1], rows)[0] for sums in (padded, packed)]
    assert grads[0].abs().max() > 0.1
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_slots_answer_in_training_as_on_the_frozen_model(opened, monkeypatch):
    """The frozen model's slots pass over a cache, with prompts as in decoding: nothing of the code is shared."""
    from coord_trainer.model.checkpoint import LoadedCheckpoint
    from coord_trainer.training import parallel_boxes
    from coord_trainer.training.slots import _Slots

    run, train, _, slots = opened
    checkpoint = LoadedCheckpoint(run.model.eval(), run.processor, run.vocab)
    frozen = _Slots(checkpoint, tiny_config(), train)
    with torch.no_grad():
        expected, targets, _ = frozen.forward(frozen.batch([0, 1, 2]), slots.rows)
    loss, seen = parallel_boxes.slot_loss, []
    monkeypatch.setattr(parallel_boxes, "slot_loss", lambda *pair: seen.append(pair) or loss(*pair))
    step(opened, [0, 1, 2])
    (found, own), *_ = seen
    torch.testing.assert_close(found.detach(), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(own, targets, rtol=1e-3, atol=1e-6)


CUSTOM = {"coord_soft_ce_w1": {"enabled": True}}
ALONG = CUSTOM | {"parallel_boxes": {"enabled": True}}
TRAINING = {"max_steps": 2, "save_steps": 2, "per_device_train_batch_size": 4, "report_to": []}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Run folders without and with slots; the second scores answers during training, drafted and accepted exactly."""
    from coord_trainer.answers import generate
    from coord_trainer.run import train_and_score

    folder = tmp_path_factory.mktemp("runs")
    evaluation = {"max_new_tokens": 24, "ap_steps": 1, "ap_images": 2}
    decode, used = generate.decode_fast, []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            generate, "decode_fast", lambda given, *rest: used.append(given.slots_SH.clone()) or decode(given, *rest)
        )
        for name, custom, speed in (("off", CUSTOM, "plain"), ("along", ALONG, "exact")):
            config = tiny_config(custom=custom, training=TRAINING, evaluation=evaluation | {"speed": speed})
            train_and_score(config, folder / name)
    torch.save(torch.stack(used), folder / "used.pt")
    return folder


def test_first_step_has_the_losses_of_a_run_without_slots(trained):
    off, along = (read_lines(trained / name)[0] for name in ("off", "along"))
    names = {name for name in off if name.startswith(("train_", "coord_diag"))}
    assert names < along.keys() and {"coord_diag/slots", "coord_diag/slots_equal"} == {
        name for name in along.keys() - off.keys() if "slots" in name
    }
    for name in names:
        assert along[name] == pytest.approx(off[name], rel=1e-5), name
    assert along["loss"] == pytest.approx(along["train_total_loss"] + 0.25 * along["coord_diag/slots"], rel=1e-5)


def test_checkpoint_has_its_slots_in_their_own_file(trained):
    from safetensors import safe_open

    folders = [trained / name / "checkpoints" / "checkpoint-2" for name in ("off", "along")]
    names = [set(safe_open(folder / "model.safetensors", "pt").keys()) for folder in folders]
    assert names[0] == names[1] and not any("slot" in name for name in names[1])
    assert not (folders[0] / SLOTS_FILE).exists()
    assert read_slots(folders[1], count=3, hidden_size=32).rows.abs().max() > 0


def test_final_answers_of_exact_are_those_of_plain(trained):
    from coord_trainer.answers.generate import answer_images
    from coord_trainer.config.decoding import Decoding
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.checkpoint import open_checkpoint

    config = tiny_config(evaluation={"speed": "fast"})
    checkpoint = open_checkpoint(trained / "along" / "checkpoints" / "checkpoint-1", config)
    assert checkpoint.slots_SH.shape == (3, 32)
    heldout = draw_sets(config, trained / "data")[1]
    images = [heldout.image(index) for index in range(2)]
    found = answer_images(checkpoint, images, config.data, Decoding(), 24)
    lines = (trained / "along" / "predictions.jsonl").read_text().splitlines()
    assert [answer["text"] for answer in found] == [json.loads(line)["text"] for line in lines]


def test_answers_during_training_are_drafted_with_the_slots_of_the_step(trained):
    lines = read_lines(trained / "along")
    assert {line["step"] for line in lines if "eval_AP" in line} == {1, 2}
    assert not any("eval_failed" in line for line in lines)
    first, second, final = torch.load(trained / "used.pt")
    saved = [read_slots(trained / "along" / "checkpoints" / f"checkpoint-{step}").rows for step in (1, 2)]
    assert not torch.equal(first, second)
    assert torch.equal(first, saved[0]) and torch.equal(second, saved[1])
    assert torch.equal(final, saved[0])  # the best by AP, which none is above


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"attention": "eager"}}, r"custom\.parallel_boxes\.enabled is true but model\.attention is eager"),
        ({"data": {"geometry": "polygon", "annotations": "a"}}, r"parallel_boxes\.enabled is true but data\.geometry"),
        ({"training": {"deepspeed": "zero3"}}, r"parallel_boxes\.enabled is true but training\.deepspeed is zero3"),
        ({"custom": {"coord_tokens": {"enabled": False}, "parallel_boxes": {"enabled": True}}}, r"parallel_boxes"),
    ],
)
def test_settings_that_slots_cannot_be_trained_with_are_refused(sections, message):
    with pytest.raises(InputError, match=message):
        tiny_config(**{"custom": ALONG} | sections)


def test_family_without_full_attention_is_refused_by_name():
    from coord_trainer.families.table import FAMILIES
    from coord_trainer.swift.open_rewards import OpenRewards
    from coord_trainer.swift.open_run import OpenRun, _refuse_impossible

    config = tiny_config(custom=ALONG)
    with pytest.raises(InputError, match=r"parallel_boxes.enabled is true but the model is a Qwen3.5, whose answers"):
        _refuse_impossible(config, FAMILIES["qwen3_5"], OpenRun)
    with pytest.raises(InputError, match=r"parallel_boxes.enabled: slots are trained by the loss of true answers"):
        _refuse_impossible(config, FAMILIES["qwen3_vl"], OpenRewards)
    _refuse_impossible(config, FAMILIES["qwen3_vl"], OpenRun)
    _refuse_impossible(tiny_config(custom=ALONG, evaluation={"speed": "fast"}), FAMILIES["qwen3_vl"], OpenRun)
