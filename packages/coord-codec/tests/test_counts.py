"""Numbers with their nouns: the first noun and each verb are those of one, all others stay."""

import pytest

from coord_codec.counts import counted, counted_note, fixed


@pytest.mark.parametrize(
    ("count", "note", "text"),
    [
        (0, "boxes are clipped", "0 boxes are clipped"),
        (2, "boxes are clipped", "2 boxes are clipped"),
        (1234, "images", "1,234 images"),
        (1, "boxes are clipped", "1 box is clipped"),
        (1, "boxes that are not around their outlines", "1 box that is not around its outlines"),
        (1, "images whose boxes are clipped and are kept", "1 image whose boxes is clipped and are kept"),
        (1, "polygons and boxes have an area", "1 polygon and box has an area"),
        (1, "objects left out", "1 object left out"),
        (1, "truncated things, which are kept", "1 truncated things, which are kept"),
        (1, "predictions state them", "1 prediction states it"),
    ],
)
def test_note_of_one_is_in_the_singular(count, note, text):
    assert counted_note(count, note) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 boxes"), (1, "1 box"), (2, "2 boxes"), (5000, "5,000 boxes")])
def test_number_with_its_noun(count, text):
    assert counted(count, "box", "boxes") == text
    assert counted(count, "image") == text.replace("boxes", "images").replace("box", "image")


@pytest.mark.parametrize(
    ("value", "decimals", "sign", "text"),
    [
        (-0.001, 2, "", "0.00"),
        (-0.001, 2, "+", "+0.00"),
        (-0.006, 2, "", "-0.01"),
        (0.25, 1, "+", "+0.2"),
        (2, 0, "", "2"),
    ],
)
def test_what_is_rounded_to_zero_has_no_minus(value, decimals, sign, text):
    assert fixed(value, decimals, sign) == text
