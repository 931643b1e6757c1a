"""A family's placeholder of an image is refused in prompts and labels before a model is opened."""

from types import SimpleNamespace

import pytest
from tiny_run import tiny_config

from coord_codec import InputError, Instance, Object
from coord_codec.annotations import AnnotationSet
from coord_data.reading.image_set import ImageSet
from coord_detect.families.registry import FAMILIES
from coord_trainer import training_stage
from coord_trainer.config.run_config import check_run_config

TOKENS = {
    token: family.name
    for family in FAMILIES.values()
    for token in (family.image_token, family.placeholder_token)
    if token is not None
}


@pytest.mark.parametrize("token", [*TOKENS, "<image>", "<video>"])
def test_placeholders_of_every_family_are_told_by_configuration_and_data(token):
    for key, prompt in (("prompt", f"find {token}"), ("class_prompt", f"find {token} {{classes}}")):
        with pytest.raises(InputError, match=rf"data\.{key}.*without") as told:
            check_run_config({"data": {key: prompt}}, "test")
        assert token in str(told.value)
    with pytest.raises(ValueError, match="expected plain words") as told:
        Object(desc=f"a {token}", bbox=(0.1, 0.2, 0.3, 0.4))
    assert token in str(told.value)


def test_training_tells_a_label_with_a_placeholder_of_its_processor_before_anything_is_encoded(tmp_path, monkeypatch):
    """A family of a plug-in has tokens that only its processor names."""
    opened = SimpleNamespace(processor=SimpleNamespace(image_token="[tile]"))  # nothing to encode with
    monkeypatch.setattr(training_stage, "open_run", lambda *_, **__: opened)
    found = [Object(desc=label, bbox=(0.1, 0.2, 0.3, 0.4)) for label in ("cat", "a [tile] of it")]
    instances = [Instance(image="photo.png", width=40, height=30, objects=found)]
    train = ImageSet("train", AnnotationSet(instances), tmp_path, "digest")
    with pytest.raises(InputError, match=r"^train: label 'a \[tile\] of it': expected plain words, found \[tile\]"):
        training_stage.train_model(tiny_config(), tmp_path, "base", train, None)
