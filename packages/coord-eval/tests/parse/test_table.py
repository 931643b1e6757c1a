"""The table of formats: every row reads its published answers, also beside other rows, and the README shows it."""

import re
from pathlib import Path

import pytest

from coord_eval import FORMATS, TextFormat, parse_answer, register_format
from coord_eval.parse.formats import REGISTRY, Published

README = Path(__file__).parents[2] / "README.md"
PUBLISHED = [
    pytest.param(row, published, id=f"{row.name}-{i}")
    for row in REGISTRY.values()
    for i, published in enumerate(row.published)
]


@pytest.fixture
def registry():
    before = dict(REGISTRY), dict(FORMATS)
    yield
    for table, kept in zip((REGISTRY, FORMATS), before, strict=True):
        table.clear()
        table.update(kept)


def read_as_published(row, published):
    """Return whether a published answer is read in the format of its row, with the published objects."""
    answer = parse_answer(published.text)
    if answer.format != ("json" if row.keys else row.name) or answer.dropped:
        return False
    found = [(item.desc, *(item.points[0] if item.geometry == "point" else item.box)) for item in answer]
    return len(found) == len(published.objects) and all(
        label == want[0] and coordinates == pytest.approx(want[1:], abs=1e-5)
        for (label, *coordinates), want in zip(found, published.objects, strict=True)
    )


def test_every_row_has_published_answers():
    assert {name for name, row in REGISTRY.items() if not row.published} == set()


@pytest.mark.parametrize(("row", "published"), PUBLISHED)
def test_row_reads_its_published_answers(row, published):
    assert read_as_published(row, published)


@pytest.mark.parametrize(("row", "published"), PUBLISHED)
def test_row_reads_its_published_answers_beside_formats_of_users(registry, row, published):
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
    assert read_as_published(row, published)


def test_row_that_takes_the_answers_of_another_is_found(registry):
    register_format(
        TextFormat(
            name="greedy",
            example="<ref>cat</ref>: <1><2><3><4>",
            pattern=r"<ref>(?P<label>[^<]*)</ref>\D*(?P<box>(?:<[0-9]+>){4})",
            number="<([0-9]+)>",
            scale=100,
            bins=101,
            published=(Published("<ref>cat</ref>: <1><2><3><4>", (("cat", 0.01, 0.02, 0.03, 0.04),)),),
        )
    )
    assert read_as_published(REGISTRY["greedy"], REGISTRY["greedy"].published[0])
    REGISTRY["locateanything"], kept = REGISTRY.pop("greedy"), REGISTRY["locateanything"]  # now it is tried first
    assert not all(read_as_published(kept, published) for published in kept.published)


def test_readme_shows_the_table():
    text = README.read_text()
    lines = [line for line in text.splitlines() if re.match(r"\| `[^|]*` \| ", line)]
    shown = {tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:4]) for line in lines}
    missing = {
        (f"`{row.name}`", f"`` {row.example} ``".replace("|", r"\|"), row.divisor) for row in REGISTRY.values()
    } - shown
    assert missing == set()


@pytest.mark.parametrize(("row", "published"), PUBLISHED)
def test_row_needs_only_text_that_its_answers_have(row, published):
    assert not row.needs or any(piece in published.text for piece in row.needs)


@pytest.mark.parametrize(("row", "published"), [p for p in PUBLISHED if "><" in p.values[1].text])
@pytest.mark.parametrize("blanks", [(r">(?=<)", "> "), (r"(<[^<>]*>)", r" \1 ")])
def test_blanks_between_tokens_change_nothing(row, published, blanks):
    """A server writes blanks between added tokens unless it is told not to."""
    read, spaced = parse_answer(published.text), parse_answer(re.sub(*blanks, published.text))
    assert [(item.desc, item.box) for item in spaced] == [(item.desc, item.box) for item in read]
    assert spaced.dropped == ()
