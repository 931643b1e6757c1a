import pytest

from coord_codec.thoughts import find_thoughts

# T is a thought, C what is answered; each piece of the text with whether it is part of a thought.
TEXTS = {
    "one that names its own mark, another, and an end without a start": [
        ("T", "<think>a<think>b</think>"),
        ("C", "cat"),
        ("T", "<think>c</think>"),
        ("C", "dog</think>pig"),
    ],
    "one within another, twice": [
        ("T", "<think>a<think>b</think>c</think>"),
        ("C", "cat"),
        ("T", "<think>d<think>e</think>f</think>"),
        ("C", "dog"),
    ],
}


@pytest.mark.parametrize("name", TEXTS)
def test_thoughts_are_told_from_what_is_answered(name):
    place, thoughts = 0, []
    for kind, text in TEXTS[name]:
        thoughts += [(place, place + len(text))] if kind == "T" else []
        place += len(text)
    assert find_thoughts("".join(text for _, text in TEXTS[name])) == (thoughts, None)
