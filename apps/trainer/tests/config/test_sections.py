"""Sections one by one: what each of their settings changes in what is derived from them, and their borders."""

import pytest

from coord_codec import InputError
from coord_trainer.config.data_sources import AugmentConfig, SourceConfig
from coord_trainer.config.run_config import check_run_config
from coord_trainer.config.sections import DataSection, EvaluationSection, ShapesConfig, TinyModelConfig

SOFT = {"coord_soft_ce_w1": {"enabled": True}}


@pytest.mark.parametrize(
    ("data", "varies"),
    [
        ({}, False),
        ({"order": "random"}, True),
        ({"order": "given"}, False),
        *(({"queries": name}, True) for name in ("per_class", "class_list", "mixed")),
        *(({"augment": {name: 0.1}}, True) for name in ("flip", "crop", "scale", "colour")),
        ({"augment": {"min_crop": 0.3, "min_scale": 0.3}}, False),
        ({"negatives": 0.5, "packing": True}, False),
    ],
)
def test_samples_vary_by_order_query_and_each_augmentation(data, varies):
    section = DataSection(**data)
    assert section.varies is varies and section.augment.active is (varies and "augment" in data)


OWN = {
    "annotations": "own.json", "images": "own", "format": "coco", "limit": 2, "on_bad_box": "drop_box",
    "allow_outside": False, "classes": ["cat"], "prompt": "Own?", "class_prompt": "Own {classes}?", "queries": "mixed",
    "negatives": 0.0, "augment": {"flip": 0.0},
}  # fmt: skip


def test_source_has_each_setting_of_its_own_also_where_it_is_0_and_else_that_of_all():
    whole = DataSection(
        format="yolo", limit=9, on_bad_box="error", allow_outside=True, classes=["dog"], prompt="All?",
        class_prompt="All {classes}?", queries="all", negatives=0.5, augment={"flip": 0.5}, max_objects=7,
        sources=[{"annotations": "a.json"}],
    )  # fmt: skip
    assert OWN.keys() == (SourceConfig.model_fields.keys() & DataSection.model_fields.keys())
    plain = whole.of_source(SourceConfig(annotations="own.json"))
    for name in OWN.keys() - {"annotations", "images"}:
        assert getattr(plain, name) == getattr(whole, name), name
        own = whole.of_source(SourceConfig(annotations="own.json", **({} if name == "images" else {name: OWN[name]})))
        assert getattr(own, name) == getattr(SourceConfig(annotations="own.json", **{name: OWN[name]}), name), name
        others = OWN.keys() - {name, "images"}
        assert all(getattr(own, other) == getattr(plain, other) for other in others)
    assert plain.images is None and plain.sources == () and plain.max_objects == 7
    assert str(whole.of_source(SourceConfig(annotations="own.json", images="own")).images) == "own"


def test_held_out_set_is_read_whole_from_its_own_files_and_not_augmented():
    whole = DataSection(annotations="a", images="b", heldout_annotations="c", limit=3, augment={"colour": 0.5})
    found = whole.of_heldout()
    assert (str(found.annotations), found.images, found.limit) == ("c", None, None)
    assert not found.augment.active and found.prompt == whole.prompt
    photos = whole.model_copy(update={"heldout_images": "d"}).of_heldout()
    assert photos.images == "d"


@pytest.mark.parametrize(
    ("data", "most"),
    [
        ({"max_objects": 9, "shapes": {"max_objects": 2}}, 2),
        ({"max_objects": 1, "shapes": {"max_objects": 2}}, 1),
        ({"max_objects": 9, "shapes": {"max_objects": 2}, "annotations": "a"}, 9),
        ({"max_objects": 9, "shapes": {"max_objects": 2}, "sources": [{"annotations": "a"}]}, 9),
    ],
)
def test_most_objects_are_those_of_generated_shapes_where_they_are_fewer(data, most):
    assert DataSection(**data).most_objects == most


A, B = {"annotations": "a", "weight": 1}, {"annotations": "b", "weight": 2}
FROZEN = {"freeze_llm": True, "freeze_vit": True, "freeze_aligner": True}
LORA = {"tuner_type": "lora"}


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"data": {"images": "b"}}, r"data\.images is given but data\.annotations is not"),
        ({"data": {"annotations": "a", "heldout_images": "b"}}, r"data\.heldout_images is given but"),
        ({"data": {"heldout_annotations": "a"}}, r"data\.heldout_annotations is given but data\.annotations"),
        ({"data": {"sources": [A, {"annotations": "c"}, B]}}, r"data\.sources\.1\.weight"),
        ({"data": {"sources": [{"annotations": "c"}, A]}}, r"data\.sources\.0\.weight"),
        ({"data": {"sources": [A, B]}, "evaluation": {"images": "train"}}, r"evaluation\.images is train"),
        ({"data": {"sources": [A, B]}, "evaluation": {"images": "heldout"}}, r"data\.heldout_annotations"),
        ({"data": {"sources": [A]}, "evaluation": {"images": "train"}}, None),
        ({"data": {"sources": [A, B], "heldout_annotations": "c"}}, None),
        ({"data": {"annotations": "a", "heldout_annotations": "c", "heldout_images": "d", "limit": 1}}, None),
        ({"data": {"geometry": "polygon"}}, None),
        ({"data": {"geometry": "keypoints"}}, "data.geometry"),
        ({"custom": {"coord_objective": {"use_coord_ce": True, "shape_boxes": True}}}, "shape_boxes"),
        ({"custom": {"coord_objective": {"use_coord_ce": True, "shape_boxes": True}}, "data": {"geometry": "point"}},
         "shape_boxes"),
        ({"custom": {"coord_objective": {"use_coord_ce": True, "shape_boxes": True}}, "data": {"geometry": "polygon"}},
         None),
        ({"custom": {"coord_objective": {"use_coord_ce": True, "matching": "hungarian"}},
          "data": {"geometry": "polygon"}}, "matching"),
        ({"custom": {"coord_objective": {"use_coord_ce": True, "matching": "hungarian"}}}, None),
        ({"run": {"gradient_norms": False}, "training": {"gradient_checkpointing": True}}, None),
        ({"run": {"gradient_norms": True}, "training": {"gradient_checkpointing": False}}, None),
        ({"evaluation": {"ap_steps": 2}, "training": {"deepspeed": "zero2"}}, None),
        ({"evaluation": {"ap_steps": 2, "ap_patience": 1}}, None),
        ({"evaluation": {"ap_steps": 2}, "training": {"greater_is_better": True}}, "greater_is_better"),
        ({"evaluation": {"images": "none"}, "training": {"early_stop_interval": 1}}, "early_stop_interval"),
        ({"model": {"dtype": "float16"}, "training": {"deepspeed": "zero2"}}, None),
        ({"model": {"dtype": "float16"}}, "float16 cannot be updated"),
        ({"model": {"dtype": "bfloat16"}}, None),
        ({"model": {"dtype": "float16"}, "training": LORA}, None),
        *(({"training": LORA | {"use_dora": dora, "target_modules": [name]}}, "use_dora" if refused else None)
          for dora, name, refused in ((True, "lm_head", True), (True, "model.embed_tokens", True),
                                      (True, "q_proj", False), (False, "lm_head", False))),
        ({"training": LORA | {"target_modules": ["lm_head"]}}, None),
        ({"training": {"max_steps": -1, "num_train_epochs": 2}}, None),
        ({"training": {"max_steps": 3}}, None),
        *(({"training": FROZEN | others}, "freeze_llm")
          for others in ({}, LORA, LORA | {"target_modules": ["all-linear"]}, LORA | {"target_modules": []})),
        *(({"training": FROZEN | others}, None)
          for others in ({"freeze_vit": False}, {"freeze_llm": False}, {"freeze_aligner": False},
                         {"trainable_parameters": ["lm_head"]}, {"trainable_parameters_regex": "lm_head"},
                         LORA | {"target_modules": ["q_proj"]}, LORA | {"target_regex": "q_proj"})),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused_and_their_neighbours_are_not(sections, told):
    values = {"custom": SOFT} | sections
    if told is None:
        check_run_config(values, "test")
        return
    with pytest.raises(InputError, match=told):
        check_run_config(values, "test")


@pytest.mark.parametrize(
    ("kind", "values", "allowed"),
    [
        (TinyModelConfig, {"hidden": 24, "vision_hidden": 24, "heads": 3}, True),
        (TinyModelConfig, {"hidden": 18, "vision_hidden": 24, "heads": 3}, False),
        (TinyModelConfig, {"hidden": 24, "vision_hidden": 18, "heads": 3}, False),
        (TinyModelConfig, {"min_pixels": 9216}, True),
        (TinyModelConfig, {"min_pixels": 9217}, False),
        (ShapesConfig, {"min_side": 0.5}, True),
        (ShapesConfig, {"min_side": 0.51}, False),
        (ShapesConfig, {"colours": 4, "noise": 0}, True),
        (ShapesConfig, {"colours": 5}, False),
        (ShapesConfig, {"colours": 0}, False),
        (AugmentConfig, {"colour": 0.99, "flip": 1, "min_crop": 1}, True),
        (AugmentConfig, {"colour": 1}, False),
        (AugmentConfig, {"flip": 1.1}, False),
        (AugmentConfig, {"min_scale": 0}, False),
        (EvaluationSection, {"ap_images": 1, "overlays": 1}, True),
        (EvaluationSection, {"ap_images": 0}, False),
        (SourceConfig, {"conversations": "a", "weight": 0.1, "images": "b", "allow_outside": True, "name": "x"}, True),
        *((SourceConfig, {"conversations": "a", name: value}, False)
          for name, value in OWN.items() if name not in ("annotations", "images", "allow_outside")),
        *((SourceConfig, {"annotations": "a", "name": name}, False) for name in ("a/b", "a\\b", "..", "a\nb", "")),
    ],
)  # fmt: skip
def test_borders_of_a_section(kind, values, allowed):
    if allowed:
        kind(**values)
        return
    with pytest.raises(ValueError, match="validation error"):
        kind(**values)
