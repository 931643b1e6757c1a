"""The template: what swift encodes, and what of a checkpoint is refused."""

import json
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from coord_codec import InputError

pytest.importorskip("swift")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([-100, 7, 8, 5], [-100, -100, -100, 5]),
        ([7, 8, 5], [-100, -100, 5]),
        ([-100, 5, 7, 8], [-100, 5, 7, 8]),  # not at the beginning of an answer
        ([-100, 7, 5], [-100, 7, 5]),
        ([-100, 7, 8], [-100, -100, -100]),
        ([-100, 7, 8, 5, -100, -100, 7, 8, 6], [-100, -100, -100, 5, -100, -100, -100, -100, 6]),  # a second turn
        ([5, 7, 8, -100], [5, 7, 8, -100]),
        ([], []),
    ],
)
def test_thought_without_content_is_not_taught_at_the_beginning_of_each_answer(labels, expected):
    from coord_trainer.swift.template import without_empty_thoughts

    before = list(labels)
    assert without_empty_thoughts(labels, thought=[7, 8]) == expected and labels == before


@pytest.mark.parametrize("name", ["config", "tokenizer_config", "preprocessor_config", "processor_config"])
def test_code_of_a_checkpoint_is_refused_wherever_it_asks_for_it(tmp_path, name):
    from coord_trainer.swift.template import refuse_remote_code

    for other in ("config", "tokenizer_config", "preprocessor_config", "processor_config"):
        (tmp_path / f"{other}.json").write_text("{}")
    refuse_remote_code(tmp_path)
    (tmp_path / f"{name}.json").write_text(json.dumps({"auto_map": {}}))
    with pytest.raises(InputError, match=rf"{name}\.json: .*auto_map"):
        refuse_remote_code(tmp_path)


@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_of_images_of_different_sizes_and_texts_of_different_lengths(opened_run, side, monkeypatch):
    """Rows may share their sizes, their lengths, the places of their images, any two of these or all."""
    _, run, _, _ = opened_run
    template = run.pipeline.template
    monkeypatch.setattr(template, "padding_side", side)
    cases = [((96, 64), "a", ""), ((64, 96), "a", ""), ((96, 64), "a b c d", ""), ((96, 64), "a", ""),
             ((64, 96), "a b c d", ""), ((64, 96), "a", "x y z")]  # fmt: skip
    samples = [
        run.encode(
            {
                "messages": [
                    {"role": "user", "content": f"{before}<image>find"},
                    {"role": "assistant", "content": answer},
                ],
                "images": [Image.new("RGB", size)],
            },
            return_length=True,
        )
        for size, answer, before in cases
    ]
    batch = template.data_collator([dict(sample) for sample in samples])
    asked = ("input_ids", "mm_token_type_ids", "image_grid_thw", "attention_mask")
    expected, _ = run.model.model.get_rope_index(**{name: batch[name] for name in asked})
    assert torch.equal(batch["position_ids"], expected)
    assert len({tuple(row) for row in batch["image_grid_thw"].tolist()}) == 2


def test_tags_stand_for_the_tokens_of_each_image_and_for_nothing_else(opened_run):
    template, family = opened_run[1].pipeline.template, opened_run[1].family
    ready = SimpleNamespace(expanded=["one", "two"])
    for index, tokens in enumerate(ready.expanded):
        assert template.replace_tag("image", index, ready) == [f"{family.vision_start}{tokens}{family.vision_end}"]
    assert template.replace_tag("image", 0, SimpleNamespace()) == [family.placeholder]
    with pytest.raises(InputError, match="images only, found video"):
        template.replace_tag("video", 0, ready)


@pytest.mark.parametrize(("coord_tokens", "skip"), [(True, True), (True, False), (False, True), (False, False)])
def test_boxes_are_left_to_swift_unless_they_are_tokens_and_that_is_asked_for(coord_tokens, skip):
    from coord_trainer.swift.template import CoordTemplate, apply_coord_template_adapter

    try:
        apply_coord_template_adapter(coord_tokens=coord_tokens, skip_bbox_norm=skip)
        assert CoordTemplate.skip_bbox_norm is (coord_tokens and skip)
    finally:
        apply_coord_template_adapter()


@pytest.mark.parametrize("without_weights", [True, False])
@pytest.mark.parametrize("use_hf", [True, False, None])
def test_checkpoint_is_fetched_from_the_hub_that_is_named(monkeypatch, without_weights, use_hf):
    from coord_trainer.swift import template

    asked = []
    monkeypatch.setattr(template, "safe_snapshot_download", lambda name, **how: asked.append((name, how)) or "there")
    assert str(template.fetch_checkpoint("a/b", use_hf, without_weights)) == "there"
    assert asked == [("a/b", {"download_model": not without_weights, "use_hf": use_hf})]
    monkeypatch.setattr(template, "safe_snapshot_download", lambda *_, **__: {}["gone"])
    with pytest.raises(InputError, match=r"model\.path: 'a/b' cannot be fetched \("):
        template.fetch_checkpoint("a/b", use_hf, without_weights)


def test_entries_are_copies_under_names_of_our_own_that_run_no_code_of_a_checkpoint(opened_run):
    from swift.model import MODEL_MAPPING
    from swift.template import TEMPLATE_MAPPING

    from coord_detect.families.registry import FAMILIES

    for family in FAMILIES.values():
        ours, theirs = TEMPLATE_MAPPING[family.template], TEMPLATE_MAPPING[family.swift_template]
        assert ours is not theirs and ours.stop_words is not theirs.stop_words
        assert ours.template_cls.family.template == family.template and issubclass(
            ours.template_cls, theirs.template_cls
        )
        assert (ours.default_system, ours.non_thinking_prefix) == (family.system, family.empty_thought)
        entry, source = MODEL_MAPPING[family.entry], MODEL_MAPPING[family.swift_model]
        assert entry.loader.default_trust_remote_code is False and issubclass(entry.loader, source.loader)
        assert (entry.template, entry.model_groups, entry.architectures, entry.is_multimodal) == (
            family.template,
            [],
            [],
            True,
        )
