"""Sources mixed in one run: conversations through swift's own template."""

import json

import pytest
import torch
from mixed_sources import TALK, write_sources

from coord_data import load_annotated
from coord_losses import CoordObjective, ObjectiveConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.data.conversations import load_conversations
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.samples import Samples
from coord_trainer.training.head import RowHead, row_selecting_head

pytest.importorskip("swift")
FORWARD = ("input_ids", "attention_mask", "pixel_values", "image_grid_thw", "mm_token_type_ids", "position_ids")


@pytest.fixture
def talk(opened_run, tmp_path):
    write_sources(tmp_path)
    found = load_conversations(tmp_path / "talk.jsonl", None, "talk", strict=True, allow_outside=False)
    return Samples(Mixture.of_one(found, DataSection()), opened_run[1].encode, [None], None)


def terms(run, batch):
    """The terms of every kind on a batch, and Hugging Face's plain loss on it."""
    from coord_trainer.swift.trainer import active_head, idle_vision

    labels, slots = batch["labels"], batch["coord_slots"]
    given = {name: batch[name] for name in FORWARD if name in batch}
    weights = {"coord_ce_weight": 1, "soft_ce_weight": 1, "w1_weight": 1, "gate_weight": 1, "box_weight": 1}
    model = run.model
    idle = () if "pixel_values" in batch else idle_vision(model)
    rows = RowHead(CoordObjective(ObjectiveConfig(**weights), run.vocab), labels, slots, False, idle=idle)
    with row_selecting_head(model, active_head(model), rows):
        output = rows.rejoin(model(**given, use_cache=False).logits)
    with torch.no_grad():
        return output.terms, model(**given, labels=labels).loss


@pytest.mark.parametrize("chosen", [[0], [1], [0, 1]])
def test_text_loss_of_a_conversation_is_the_plain_loss(opened_run, talk, chosen):
    run = opened_run[1]
    found, plain = terms(run, run.collate([talk[n] for n in chosen]))
    torch.testing.assert_close(found["text_ce"].sum / found["text_ce"].count, plain, rtol=1e-5, atol=1e-6)
    assert all(int(term.count) == 0 and not term.sum.any() for name, term in found.items() if name not in SHARED)


SHARED = ("text_ce", "coord_ce")
"""They share the count of all supervised tokens."""


def test_all_answers_of_a_conversation_are_learnt_and_nothing_else(opened_run, talk):
    tokenizer = opened_run[1].processor.tokenizer
    for index, record in enumerate(TALK):
        sample = talk[index]
        learnt = tokenizer.decode([label for label in sample["labels"] if label != -100])
        answers = [m["content"] for m in record["messages"] if m["role"] == "assistant"]
        assert [part.strip() for part in learnt.split("<|im_end|>")][:-1] == answers
        whole = tokenizer.decode(sample["input_ids"])
        assert all(
            m["content"].replace("<image>", "")
            in whole.replace("<|image_pad|>", "").replace("<|vision_start|><|vision_end|>", "")
            for m in record["messages"]
        )
        assert len(sample.get("image_grid_thw", ())) == len(record.get("images", ()))
        assert opened_run[1].length(talk.mixture.sources[0].content.raw(index)) == len(sample["input_ids"])


@pytest.mark.parametrize("mark", ["think", "thinking"])
def test_a_thought_is_learnt_as_text_and_its_boxes_are_no_objects(opened_run, tmp_path, mark):
    write_sources(tmp_path)
    thought = f'<{mark}>Maybe [{{"bbox_2d": [1, 2, 30, 40], "label": "dog"}}]?</{mark}>'
    answer = thought + '\n\n[{"bbox_2d": [100, 200, 300, 400], "label": "cat"}]'
    turns = [{"role": "user", "content": "<image>Find all."}, {"role": "assistant", "content": answer}]
    path = tmp_path / "thought.jsonl"
    path.write_text(json.dumps({"messages": turns, "images": ["big/0.png"]}) + "\n")
    (instance,) = load_annotated(path).instances
    assert [item.desc for item in instance.objects] == ["cat"]
    found = load_conversations(path, None, "thought", strict=True, allow_outside=False)
    (sample,) = Samples(Mixture.of_one(found, DataSection()), opened_run[1].encode, [None], None)
    learnt = opened_run[1].processor.tokenizer.decode([label for label in sample["labels"] if label != -100])
    assert learnt.split("<|im_end|>")[0].strip() == answer and answer in "".join(found.texts)


@pytest.mark.slow
@pytest.mark.parametrize("packing", [False, True])
def test_conversations_and_images_share_a_batch(opened_run, talk, packing, monkeypatch):
    """Each sample has the loss that it has alone, wherever the sample of text alone stands."""
    from coord_detect.model.attention import attend_by_sample
    from coord_trainer.data.batches import collate_samples

    _, run, _, samples = opened_run
    if packing:
        attend_by_sample(run.model, packed=True)
    try:
        for order in ([samples[0], talk[0], talk[1]], [talk[0], samples[0], talk[1]]):
            sums = []
            for group in (order, *([one] for one in order)):
                batch = collate_samples(
                    [dict(one) for one in group], run.pipeline.template.data_collator, run.vocab, packing
                )
                with torch.no_grad():
                    sums.append({name: float(term.sum) for name, term in forward(run, batch).items()})
            for name, together in sums[0].items():
                assert together == pytest.approx(sum(alone[name] for alone in sums[1:]), rel=1e-4), name
    finally:
        run.model.set_attn_implementation({"text_config": "sdpa"})


def forward(run, batch):
    from coord_trainer.swift.trainer import active_head

    given = {
        name: batch[name] for name in (*FORWARD, "text_position_ids", "cu_seq_lens_q", "max_length_q") if name in batch
    }
    given.pop("text_position_ids", None)
    objective = CoordObjective(ObjectiveConfig.mixed(), run.vocab)
    rows = RowHead(objective, batch["labels"], batch["coord_slots"], want_diagnostics=False)
    with row_selecting_head(run.model, active_head(run.model), rows):
        return rows.rejoin(run.model(**given, use_cache=False).logits).terms


def test_vision_tower_has_a_gradient_of_zero_where_all_is_text(opened_run, talk):
    from coord_trainer.swift.trainer import idle_vision

    run = opened_run[1]
    found, _ = terms(run, run.collate([talk[0]]))
    tower = idle_vision(run.model)
    grads = torch.autograd.grad(found["text_ce"].sum, tower, allow_unused=True)
    assert len(tower) > 10 and all(grad is not None and not grad.any() for grad in grads)
