"""Words beside numbers: the confidence among them, and what is left."""

import pytest

from coord_eval.parse.line_words import without_score


@pytest.mark.parametrize(
    ("words", "left", "score"),
    [
        ("red car (0.87): ", "red car :", "0.87"),
        ("red car, score 90%", "red car", "90%"),
        ("red car, score 90% (0.5)", "red car", "90%"),  # the named one counts, and none of them is part of the label
        ("cat: 98%", "cat", "98%"),
        ("dog 0.98", "dog", "0.98"),
        ("platform 9", "platform 9", None),
        ("car 2", "car 2", None),
        ("cat", "cat", None),
    ],
)
def test_confidence_is_taken_from_the_words(words, left, score):
    found, scores = without_score(words)
    assert " ".join(found.replace(",", " ").split()) == left
    assert [field.text for field in scores] == ([] if score is None else [score])
