"""A family's placeholder of an image is refused in prompts and labels before a model is opened."""

import pytest

from coord_codec import InputError, Object
from coord_trainer.config.run_config import check_run_config
from coord_trainer.families.registry import FAMILIES

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
