import pytest

from coord_codec.thoughts import blanked, find_thoughts, without_thoughts

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
    "one within another, and an end too many": [("T", "<think>a<think>b</think>c</think>"), ("C", "cat</think>dog")],
}


@pytest.mark.parametrize("name", TEXTS)
def test_thoughts_are_told_from_what_is_answered(name):
    place, thoughts = 0, []
    for kind, text in TEXTS[name]:
        thoughts += [(place, place + len(text))] if kind == "T" else []
        place += len(text)
    assert find_thoughts("".join(text for _, text in TEXTS[name])) == (thoughts, None)


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_answered_stays_at_its_place_and_thoughts_are_blank(name):
    written = "".join(text for _, text in TEXTS[name])
    read = without_thoughts(written)
    assert len(read) == len(written) and read.split() == [text for kind, text in TEXTS[name] if kind == "C"]


def test_a_thought_that_never_ends_lasts_to_the_end_of_the_text():
    text = "cat<think>a</think>dog<think>a cow, or"
    assert find_thoughts(text)[1] == text.rindex("<think>")
    assert without_thoughts(text).split() == ["cat", "dog"] and len(without_thoughts(text)) == len(text)


SPELLINGS = [f"<{tag}>" for tag in ("think", "THINK", "Think", "thinking", "Thought", "REASONING", "seed:think")]


@pytest.mark.parametrize("mark", [*SPELLINGS, "\u25c1think\u25b7", "[THINK]", "<|begin_of_thought|>"])
def test_marks_of_a_thought_in_every_spelling(mark):
    end = "<|end_of_thought|>" if "|" in mark else mark[0] + "/" + mark[1:]
    text = f"{mark}a cow{end}cat"
    assert find_thoughts(text) == ([(0, len(text) - 3)], None)
    assert find_thoughts(text[len(mark) :]) == ([(0, len(text) - len(mark) - 3)], None)
    assert find_thoughts(f"cat{mark}a cow") == ([], 3)


def test_blanks_are_as_many_as_the_letters_whatever_their_number():
    for ranges in ([], [(0, 0)], [(1, 2)], [(0, 1), (3, 5)], [(0, 2), (2, 6)], [(0, 6)]):
        found = blanked("abcdef", ranges)
        blank = {place for start, end in ranges for place in range(start, end)}
        assert len(found) == 6 and {n for n in range(6) if found[n].isspace()} == blank, ranges
        assert all(found[start] == "\n" == found[end - 1] for start, end in ranges if end > start)
