"""Forced tokens of answers in a vocabulary of single letters."""

from itertools import product

from coord_codec import CoordGrid, CoordVocab
from coord_detect.grammar.served import AnswerForm
from coord_detect.speed.forced import ForcedTokens

LETTERS = "w012SEexv"  # w and v words, 0 to 2 coordinates, S and E markers, e the end, x something foreign
FORM = AnswerForm(
    CoordVocab(1, CoordGrid(bins=3, scale=3)),
    (LETTERS.index("S"), LETTERS.index("E")),
    None,
    None,
    words=(LETTERS.index("w"), LETTERS.index("v")),
    spelled=((LETTERS.index("w"),), (LETTERS.index("v"),)),
)
ANSWERS = ["", "S", "Sw", "Sw0122", "Sw0122E", "Sw0122ES", "Sv", "Sv0122", "xxS", "xxSw0122ESv0011", "Sw0122EE", "xx"]
ANSWERS += ["Sv0122ESww0122", "xxxxxxxxxxSww0122"]


def ids(text):
    return [LETTERS.index(letter) for letter in text]


def text(tokens):
    return "".join(LETTERS[token] for token in tokens)


def test_what_follows_depends_on_nothing_that_was_asked_before():
    forced = ForcedTokens(FORM, LETTERS.index("e"))
    drafts = {answer: text(ForcedTokens(FORM, LETTERS.index("e")).draft(ids(answer))) for answer in ANSWERS}
    follows = {answer: text(ForcedTokens(FORM, LETTERS.index("e")).following(ids(answer))) for answer in ANSWERS}
    assert (drafts["Sw0122"], follows["Sw0122"], follows["xxxxxxxxxxSww0122"], follows["xx"]) == ("ES", "ES", "ES", "")
    for before, answer in product(ANSWERS, ANSWERS):
        forced.draft(ids(before))
        assert text(forced.following(ids(answer))) == follows[answer], (before, answer)
        forced.following(ids(before))
        assert text(forced.following(ids(answer), most=1)) == follows[answer][:1], (before, answer)
    for row, (answer, expected) in enumerate(drafts.items()):
        assert text(forced.draft(ids(answer), row + 1)) == expected  # each row has a state of its own


def test_rows_of_a_batch_grow_side_by_side():
    forced = ForcedTokens(FORM, LETTERS.index("e"))
    whole = ["Sw0122ESw0011E", "xxSvv122ESww0011E"]
    for end in range(18):
        found = [text(forced.draft(ids(answer[:end]), row)) for row, answer in enumerate(whole)]
        alone = [text(ForcedTokens(FORM, LETTERS.index("e")).draft(ids(answer[:end]))) for answer in whole]
        assert found == alone, end


def test_without_a_form_nothing_is_drafted():
    assert ForcedTokens().draft([]) == ForcedTokens().following(ids("Sw")) == []
