"""The grammar, on a scripted model with a vocabulary small enough to enumerate."""

import itertools
import re

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab
from coord_trainer.answers.generate import StepRecorder
from coord_trainer.answers.grammar import CoordGrammar

GRID = CoordGrid(bins=2, scale=2)
# One letter a token: w a word, 0 and 1 coordinates, e the end of the turn, x something foreign.
LETTERS = {2: "w01SEex", 4: "w01SRBEex"}
LANGUAGE = {2: r"(Sw+[01]{4}E)*e", 4: r"(Sw+RB[01]{4}E)*e"}
VOCAB = CoordVocab(1, GRID)


def grammar(markers, limit=None, prompt=0):
    letters = LETTERS[markers]
    ids = [letters.index(c) for c in ("SE" if markers == 2 else "SRBE")]
    return CoordGrammar(VOCAB, ids, letters.index("e"), [0], prompt_length=prompt, max_new_tokens=limit)


def allowed(rules, letters, beginning):
    ids = torch.tensor([[letters.index(c) for c in beginning]], dtype=torch.long)
    scores = rules(ids, torch.zeros(1, len(letters)))
    return {letters[i] for i in (scores[0] == 0).nonzero()[:, 0].tolist()}


def enumerate_answers(shapes, limit):
    """All answers of objects in `shapes` within the limit, and the tokens that continue each beginning of one."""
    answers, frontier = {"e"}, {""}
    while frontier:
        frontier = {a + s for a in frontier for s in shapes if len(a + s) < limit}
        answers |= {a + "e" for a in frontier}
    continuations = {}
    for answer in answers:
        for cut in range(len(answer)):
            continuations.setdefault(answer[:cut], set()).update("01" if answer[cut] == "c" else answer[cut])
    return answers, continuations


@pytest.mark.parametrize(("markers", "limit"), [(2, 16), (2, 9), (2, 7), (4, 11), (4, 10)])
def test_grammar_allows_a_token_exactly_if_a_well_formed_answer_goes_on_like_that(markers, limit):
    """Against an enumeration of the whole language up to the limit."""
    shapes = [f"S{'w' * n}{'RB' * (markers == 4)}cccc{'E'}" for n in range(1, limit)]
    answers, continuations = enumerate_answers(shapes, limit)
    assert all(re.fullmatch(LANGUAGE[markers], a.replace("c", "0")) for a in answers)
    rules, letters = grammar(markers, limit), LETTERS[markers]
    for beginning, expected in continuations.items():
        for side in "01":
            assert allowed(rules, letters, beginning.replace("c", side)) == expected, beginning


NAMES = ("w", "wv", "vvw")


def named(markers, limit=None):
    letters = LETTERS[markers] + "v"
    ids = [letters.index(c) for c in ("SE" if markers == 2 else "SRBE")]
    names = [[letters.index(c) for c in name] for name in NAMES]
    words = [0, letters.index("v")]
    end = letters.index("e")
    return letters, CoordGrammar(VOCAB, ids, end, words, prompt_length=0, max_new_tokens=limit, descriptions=names)


@pytest.mark.parametrize(("markers", "limit"), [(2, 16), (2, 9), (2, 7), (4, 11), (4, 10)])
def test_grammar_allows_known_names_and_no_others_within_the_limit(markers, limit):
    """Against an enumeration of the language whose objects have one of three names."""
    shapes = [f"S{name}{'RB' * (markers == 4)}ccccE" for name in NAMES]
    letters, rules = named(markers, limit)
    for beginning, expected in enumerate_answers(shapes, limit)[1].items():
        assert allowed(rules, letters, beginning.replace("c", "0")) == expected, beginning


@pytest.mark.parametrize(
    ("beginnings", "may_follow"),
    [("", "Se"), ("S", "wv"), ("Sw", "v01"), ("Swv Svvw Svvw0", "01"), ("Sv Sw0000ESv", "v"), ("Svv", "w")],
)
def test_grammar_ends_a_known_name_where_it_is_complete(beginnings, may_follow):
    letters, rules = named(2)
    for beginning in beginnings.split(" "):
        assert allowed(rules, letters, beginning) == set(may_follow)


@pytest.mark.parametrize("names", [[], [[0], []]])
def test_grammar_refuses_to_know_no_name_at_all(names):
    with pytest.raises(ValueError, match="descriptions"):
        CoordGrammar(VOCAB, [3, 4], 5, [0], prompt_length=0, descriptions=names)


@pytest.mark.parametrize("markers", [2, 4])
def test_grammar_ends_every_answer_well_formed(markers):
    letters, generator = LETTERS[markers], torch.Generator().manual_seed(0)
    for trial, limit in itertools.product(range(30), (1, 6, 7, 12, 31)):
        rules, ids = grammar(markers, limit, prompt=3), [2, 0, 1]
        bias = 8.0 * torch.randn(len(letters), generator=generator) * (trial % 3)
        while letters[ids[-1]] != "e":
            scores = bias + torch.randn(1, len(letters), generator=generator)
            ids.append(int(rules(torch.tensor([ids]), scores).argmax()))
        answer = "".join(letters[i] for i in ids[3:])
        assert len(answer) <= limit
        assert re.fullmatch(LANGUAGE[markers], answer), answer


class Scripted(torch.nn.Module):
    """Prefers the letters of a script, one a step, whatever was generated."""

    def __init__(self, letters, script):
        super().__init__()
        self.letters, self.script = letters, script

    def answer(self, recorder, prompt):
        ids = torch.tensor(prompt, dtype=torch.long)
        for step in range(max(map(len, self.script))):
            scores = torch.zeros(len(self.script), len(self.letters))
            for row, text in enumerate(self.script):
                scores[row, self.letters.index(text[step] if step < len(text) else "e")] = 5.0
            ids = torch.cat([ids, recorder(ids, scores).argmax(dim=1, keepdim=True)], dim=1)
        return ["".join(self.letters[i] for i in row[len(prompt[0]) :]) for row in ids.tolist()]


@pytest.mark.parametrize(
    ("markers", "script"),
    [(2, ["Sw0110ESww1111Ee", "Sw0000Ee", "e"]), (4, ["SwRB0110ESwwRB1111Ee", "SwwRB0000Ee", "e"])],
)
def test_grammar_leaves_a_well_formed_answer_as_it_is(markers, script):
    letters = LETTERS[markers]
    prompt = [[0, 3, 1]] * len(script)
    longest = max(map(len, script))
    for recorder in (StepRecorder(VOCAB, grammar(markers, longest, prompt=3)), StepRecorder(VOCAB)):
        answers = Scripted(letters, script).answer(recorder, prompt)
        assert [text[: text.index("e") + 1] for text in answers] == script


def test_grammar_closes_an_answer_within_the_limit_and_gives_it_a_box():
    answers = Scripted(LETTERS[2], ["Swwwwwwwwwwwwwww"]).answer(StepRecorder(VOCAB, grammar(2, 12)), [[]])
    assert re.fullmatch(r"Sw{5}[01]{4}Ee", answers[0][:12])
    answers = Scripted(LETTERS[2], ["SeSxS0", "xxxxxx"]).answer(StepRecorder(VOCAB, grammar(2)), [[], []])
    # the end, the foreign token and the nested start are ruled out
    assert answers[0] == "Swwww0"


def test_grammar_remembers_nothing_between_calls_so_beams_may_change_places():
    rules, letters = grammar(2, 20), LETTERS[2]
    first = allowed(rules, letters, "Sw01")
    allowed(rules, letters, "")
    assert allowed(rules, letters, "Sw01") == first == {"0", "1"}
