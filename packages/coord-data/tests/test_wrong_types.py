"""Arguments of wrong types are `InputError`s that name them."""

from functools import partial

import pytest

from coord_codec import InputError
from coord_data import ReadingRules, Source, examine, gather_evidence, load_annotated, look_at, open_source, prepare
from coord_data.formats.registry import register_reader

CALLS = {
    **{"examine": examine, "load_annotated": load_annotated, "look_at": look_at, "open_source": open_source},
    "gather_evidence": partial(gather_evidence, rules=ReadingRules()),
    "prepare": partial(prepare, out=None, data=ReadingRules()),
    "register_reader": partial(register_reader, read=lambda source, images: None),
    "register_reader as read": partial(register_reader, "mine"),
    "Source": Source,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [None, 5, b"x", object()])
def test_first_argument_of_a_wrong_type_is_an_input_error(name, value):
    with pytest.raises(InputError, match="expected"):
        CALLS[name](value)
