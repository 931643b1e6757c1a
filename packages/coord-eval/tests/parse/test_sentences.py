"""Names in sentences: every order of the words ends with a name of the text, or none."""

import random

from coord_eval.parse import sentences


def test_name_in_sentence_of_any_words_is_part_of_them():
    draw = random.Random(0)
    known = sorted(sentences._NO_NAMES | sentences._VERBS_IN_A_CLAUSE | sentences._FOREIGN_VERBS)
    for _ in range(3_000):
        words = draw.choices([*known, "click", "and", "that", "dog", "cat,", "'s"], k=draw.randint(1, 7))
        text = " ".join(words)
        assert (sentences.name_in_sentence(text) or "") in text


def test_name_in_sentence_gives_none_rather_than_a_wrong_one():
    for text in ("whose box is", "Therefore", "I see it at", "est est", "The answer is"):
        assert not sentences.name_in_sentence(text)
