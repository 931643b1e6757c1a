"""The table of formats: every row reads its published answers, also beside other rows."""

import re

import pytest

from coord_eval import FORMATS, TextFormat, parse_answer, register_format


def read_as_published(published):
    """Return whether a published answer is read in the format of its row, with the published objects."""
    answer = parse_answer(published.text)
    if answer.format != ("json" if published.row.keys else published.row.name) or answer.dropped:
        return False
    found = [(item.desc, *(item.points[0] if item.geometry == "point" else item.box)) for item in answer]
    return len(found) == len(published.objects) and all(
        label == want[0] and coordinates == pytest.approx(want[1:], abs=1e-5)
        for (label, *coordinates), want in zip(found, published.objects, strict=True)
    )


def test_every_row_has_published_answers(all_published):
    assert {published.row.name for published in all_published} == set(FORMATS)


def test_rows_read_their_published_answers_also_beside_formats_of_users(registry, all_published):
    assert [published for published in all_published if not read_as_published(published)] == []
    register_format(
        TextFormat(
            name="at",
            example="cat @ 20,10,40,30;",
            pattern=r"(?P<label>[^@;]*)@(?P<box>[^@;]*)(?P<end>;|)",
            order="yxyx",
            scale=100,
        )
    )
    register_format(TextFormat(name="mine", example='{"where": [y1, x1, y2, x2]}', keys=("where",), order="yxyx"))
    assert [published for published in all_published if not read_as_published(published)] == []


def test_row_that_takes_the_answers_of_another_is_found(registry, all_published):
    row = TextFormat(
        name="greedy",
        example="<ref>cat</ref>: <1><2><3><4>",
        pattern=r"<ref>(?P<label>[^<]*)</ref>\D*(?P<box>(?:<[0-9]+>){4})",
        number="<([0-9]+)>",
        scale=100,
        bins=101,
    )
    register_format(row)
    assert parse_answer(row.example).format == "greedy"
    FORMATS["locateanything"], kept = FORMATS.pop("greedy"), FORMATS["locateanything"]  # now it is tried first
    assert not all(read_as_published(published) for published in all_published if published.row is kept)


def test_rows_need_only_text_that_their_answers_have(all_published):
    for row, text, _ in all_published:
        assert not row.needs or any(piece in text for piece in row.needs), text


@pytest.mark.parametrize("blanks", [(r">(?=<)", "> "), (r"(<[^<>]*>)", r" \1 ")])
def test_blanks_between_tokens_change_nothing(all_published, blanks):
    """A server writes blanks between added tokens unless it is told not to."""
    for text in (published.text for published in all_published if "><" in published.text):
        read, spaced = parse_answer(text), parse_answer(re.sub(*blanks, text))
        assert [(item.desc, item.box) for item in spaced] == [(item.desc, item.box) for item in read], text
        assert spaced.dropped == (), text


SENTENCES = [
    "A cat is at [[100, 200, 300, 400]].",
    "There is a vase [120, 80, 340, 620] on the table [0, 540, 999, 990].",
    "The stool is at (120, 210, 305, 420); it is brown.",
    "\u56fe\u4e2d\u6709\u4e00\u53ea\u732b,\u8fb9\u754c\u6846\u4e3a [120, 230, 560, 780]\u3002",
    "Der Hund liegt bei [120, 230, 560, 780].",
    "The mug stands at [120 230 560 780].",
]


@pytest.mark.slow
def test_row_takes_no_answer_without_its_own_marks(all_published):
    assert {parse_answer(text).format for text in SENTENCES} == {"lists"}
    for row in FORMATS.values():
        marks = (*row.needs, *re.findall(r"<[^<>0-9]+>", row.example))
        texts = [published.text for published in all_published if row.needs] + SENTENCES * (row.name != "lists")
        for text in texts:
            assert any(mark in text for mark in marks) or not parse_answer(text, row.name).objects, (row.name, text)
