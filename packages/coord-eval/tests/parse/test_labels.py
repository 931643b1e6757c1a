"""Labels in free text: those of lists as they are, those of sentences by one short rule that is always marked."""

import pytest

from coord_eval import parse_answer

BOX = "[100, 200, 300, 400]"


def labels(text):
    return [(item.desc, item.repairs) for item in parse_answer(text)]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (f"There is a vase {BOX} here.", "vase"),
        (f"Also: cup {BOX}", "cup"),
        (f"The stool is at {BOX}.", "stool"),
        (f"the red car: {BOX}", "red car"),
        (f"A man in a hat{BOX}", "hat"),
        (f"{BOX} - a pen", "pen"),
        (f"\u043a\u043e\u0442 {BOX}.", "\u043a\u043e\u0442"),
        (f"Voici les objets\u00a0: chat {BOX}", "chat"),
        (f"Voici le chat: {BOX}", "Voici le chat"),
    ],
)
def test_few_words_of_a_sentence_are_a_marked_label(text, label):
    assert labels(text) == [(label, ("label_from_sentence",))]


@pytest.mark.parametrize(
    "text",
    [
        f"It is located in {BOX}.",
        f"The dog's bounding box is {BOX}.",
        f"The coordinates of the cat on the mat are: {BOX}",
        f"\u56fe\u4e2d\u6709\u4e00\u53ea\u732b,\u8fb9\u754c\u6846\u4e3a {BOX}\u3002",
        f"\u732b\u5728{BOX}",
        f"Las coordenadas del gato son: {BOX}",
        f"\u732b\u7684\u5750\u6807\u662f: {BOX}",
    ],
)
def test_sentence_without_such_words_gives_no_label_and_says_so(text):
    ((label, repairs),) = labels(text)
    assert label == "" and "no_label" in repairs and "label_from_sentence" in repairs


@pytest.mark.parametrize(
    "text", [f"cat: {BOX}", f"cat {BOX}", f"cat - {BOX}", f"- cat {BOX}", f"{BOX} cat", f"1. cat: {BOX}"]
)
def test_label_of_a_list_is_not_marked(text):
    assert labels(text) in ([("cat", ())], [("cat", ("label_trimmed",))])


def test_sentence_does_not_take_the_label_of_another():
    answer = parse_answer(f"The cup is at {BOX} and it is on what you see at [1, 2, 30, 40].")
    assert [item.desc for item in answer] == ["cup", ""]
