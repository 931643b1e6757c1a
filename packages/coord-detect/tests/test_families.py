"""The rows of the model families, written out, and the figures that transformers' own configurations state."""

import pytest
from transformers import CONFIG_MAPPING

from coord_codec import InputError
from coord_detect.families.family import Family
from coord_detect.families.registry import FAMILIES, family_of

QWEN = {"image_token": "<|image_pad|>", "placeholder": "<|vision_start|><|image_pad|><|vision_end|>"}
QWEN |= {"answer_end": "<|im_end|>", "native_markers": "qwen", "max_side_ratio": 200, "whole_tile": -1}
QWEN |= {"vision_tower": "model.visual", "merger": "model.visual.merger", "token_types": "mm_token_type_ids"}
QWEN |= {"image_inputs": ("pixel_values", "image_grid_thw"), "language_model": "model.language_model"}
OLD = QWEN | {"system": "You are a helpful assistant.", "empty_thought": ""}
NEW = QWEN | {"system": None, "empty_thought": ""}
THINKS = QWEN | {"system": None, "empty_thought": "<think>\n\n</think>\n\n"}
OTHER = {"native_markers": None, "max_side_ratio": None, "image_inputs": ("pixel_values",), "system": None}
OTHER |= {"vision_tower": "model.vision_tower", "merger": "model.multi_modal_projector", "empty_thought": ""}
EXPECTED = {
    "qwen2_vl": ("Qwen2-VL", "qwen2_vl", "qwen2_vl", set(), OLD),
    "qwen2_5_vl": ("Qwen2.5-VL", "qwen2_5_vl", "qwen2_5_vl", set(), OLD),
    "qwen3_vl": ("Qwen3-VL", "qwen3_vl", "qwen3_vl", set(), NEW),
    "qwen3_vl_moe": ("Qwen3-VL-MoE", "qwen3_vl_moe", "qwen3_vl", set(), NEW),
    "qwen3_5": ("Qwen3.5", "qwen3_5", "qwen3_5", {"packing", "speed"}, THINKS),
    "qwen3_5_moe": ("Qwen3.5-MoE", "qwen3_5_moe", "qwen3_5", {"packing", "speed"}, THINKS),
    "internvl": (
        *("InternVL3", "internvl", "internvl", {"packing", "pixels"}),
        OTHER | {"placeholder": "<IMG_CONTEXT>\n", "answer_end": "<|im_end|>", "token_types": None},
    ),
    "gemma3": (
        *("Gemma 3", "gemma3_vision", "gemma3", {"packing", "speed", "merger", "pixels"}),
        OTHER | {"placeholder": "<start_of_image>", "image_token": "<image_soft_token>", "answer_end": "<end_of_turn>"}
        | {"token_types": "token_type_ids"},
    ),
}  # fmt: skip


def test_every_row_is_as_its_publisher_has_it():
    assert FAMILIES.keys() == EXPECTED.keys()
    for kind, (name, swift, template, cannot, more) in EXPECTED.items():
        row = FAMILIES[kind]
        assert (row.model_type, row.name, row.swift_model, row.entry) == (kind, name, swift, f"{kind}_coord")
        templates = {"gemma3": "gemma3_coord"}.get(kind, f"{template}_coord")
        own = {"qwen3_vl_moe": "qwen3_vl_coord", "qwen3_5_moe": "qwen3_5_coord"}.get(kind)
        assert (row.template, row.shared_template) == (templates, own), kind
        assert row.swift_template == {"internvl": "internvl_hf", "gemma3": "gemma3_vision"}.get(kind, template)
        assert row.cannot.keys() == cannot and all(row.cannot.values())
        assert {field: getattr(row, field) for field in more} == more, kind


@pytest.mark.parametrize("kind", EXPECTED)
def test_sides_of_patches_are_those_of_transformers(kind):
    row, config = FAMILIES[kind], CONFIG_MAPPING[kind]()
    vision = config.vision_config
    if kind == "gemma3":  # whose published models have other patches: 64 a side of 896 pixels, which become 256 tokens
        assert (row.patch_size * 64, row.merge_size**2 * config.mm_tokens_per_image) == (896, 64 * 64)
    elif kind == "internvl":
        assert ([row.patch_size] * 2, 1 / row.merge_size) == (list(vision.patch_size), config.downsample_ratio)
    else:
        assert (row.patch_size, row.merge_size) == (vision.patch_size, vision.spatial_merge_size)


def test_family_is_that_of_the_configuration_and_takes_known_refusals(tmp_path):
    for kind in ("gemma3", "unknown"):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}"}}')
        if kind in FAMILIES:
            assert family_of(tmp_path) is FAMILIES[kind]
        else:
            with pytest.raises(InputError, match=r"config\.json: model_type: expected qwen3_vl or .*, found 'unknown'"):
                family_of(tmp_path)
    with pytest.raises(ValueError, match=r"cannot: expected merger or packing or pixels or speed, found 'sped'"):
        Family("x", "x", swift_model="x", swift_template="x", cannot={"sped": "why", "packing": "why"})
