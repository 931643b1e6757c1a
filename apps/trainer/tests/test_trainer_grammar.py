"""The grammar and what is read off a step, on a scripted model with a vocabulary small enough to enumerate."""

import itertools
import re

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab
from coord_trainer.grammar import CoordGrammar
from coord_trainer.step_recorder import StepRecorder

GRID = CoordGrid(bins=2, scale=2)
# One letter a token: w a word, 0 and 1 coordinates, e the end of the turn, x something foreign.
LETTERS = {2: "w01SEex", 4: "w01SRBEex"}
LANGUAGE = {2: r"(Sw+[01]{4}E)*e", 4: r"(Sw+RB[01]{4}E)*e"}
VOCAB = CoordVocab(1, GRID)


def grammar(markers, limit=None, prompt=0):
    letters = LETTERS[markers]
    ids = [letters.index(c) for c in ("SE" if markers == 2 else "SRBE")]
    return CoordGrammar(VOCAB, ids, letters.index("e"), [0], prompt_length=prompt, max_new_tokens=limit)


def allowed(rules, letters, said):
    scores = rules(
        torch.tensor([[letters.index(c) for c in said]], dtype=torch.long), torch.zeros(1, len(letters))
    )
    return {letters[i] for i in (scores[0] == 0).nonzero()[:, 0].tolist()}


@pytest.mark.parametrize(("markers", "limit"), [(2, 16), (2, 9), (2, 7), (4, 11), (4, 10)])
def test_a_token_is_let_through_exactly_if_a_well_formed_answer_goes_on_like_that(markers, limit):
    """Against an enumeration of the whole language up to the limit."""
    shapes = [f"S{'w' * n}{'RB' * (markers == 4)}cccc{'E'}" for n in range(1, limit)]
    answers = {"e"}
    frontier = {""}
    while frontier:
        frontier = {a + s for a in frontier for s in shapes if len(a + s) < limit}
        answers |= {a + "e" for a in frontier}
    assert all(re.fullmatch(LANGUAGE[markers], a.replace("c", "0")) for a in answers)
    going_on = {}
    for answer in answers:
        for cut in range(len(answer)):
            going_on.setdefault(answer[:cut], set()).add(answer[cut])
    rules, letters = grammar(markers, limit), LETTERS[markers]
    for said, expected in going_on.items():
        wanted = (expected - {"c"}) | ({"0", "1"} if "c" in expected else set())
        for side in "01":
            assert allowed(rules, letters, said.replace("c", side)) == wanted, said


NAMES = ("w", "wv", "vvw")


def named(markers, limit=None):
    letters = LETTERS[markers] + "v"
    ids = [letters.index(c) for c in ("SE" if markers == 2 else "SRBE")]
    names = [[letters.index(c) for c in name] for name in NAMES]
    words = [0, letters.index("v")]
    end = letters.index("e")
    return letters, CoordGrammar(
        VOCAB, ids, end, words, prompt_length=0, max_new_tokens=limit, descriptions=names
    )


@pytest.mark.parametrize(("markers", "limit"), [(2, 16), (2, 9), (2, 7), (4, 11), (4, 10)])
def test_known_names_and_no_others_are_given_within_the_limit(markers, limit):
    """Against an enumeration of the language whose objects have one of three names."""
    shapes = [f"S{name}{'RB' * (markers == 4)}cccc{'E'}" for name in NAMES]
    answers, frontier = {"e"}, {""}
    while frontier:
        frontier = {a + s for a in frontier for s in shapes if len(a + s) < limit}
        answers |= {a + "e" for a in frontier}
    going_on = {}
    for answer in answers:
        for cut in range(len(answer)):
            going_on.setdefault(answer[:cut], set()).add(answer[cut])
    letters, rules = named(markers, limit)
    for said, expected in going_on.items():
        wanted = (expected - {"c"}) | ({"0", "1"} if "c" in expected else set())
        assert allowed(rules, letters, said.replace("c", "0")) == wanted, said


@pytest.mark.parametrize(
    ("said", "may_follow"),
    [
        ("", "Se"),
        ("S", "wv"),
        ("Sw", "v01"),
        ("Swv", "01"),
        ("Sv", "v"),
        ("Svv", "w"),
        ("Svvw", "01"),
        ("Sw0000ESv", "v"),
        ("Svvw0", "01"),
    ],
)
def test_a_known_name_is_over_where_it_is_complete(said, may_follow):
    letters, rules = named(2)
    assert allowed(rules, letters, said) == set(may_follow)


@pytest.mark.parametrize("names", [[], [[0], []]])
def test_no_name_at_all_is_refused(names):
    with pytest.raises(ValueError, match="descriptions"):
        CoordGrammar(VOCAB, [3, 4], 5, [0], prompt_length=0, descriptions=names)


@pytest.mark.parametrize("markers", [2, 4])
def test_whatever_the_model_prefers_the_answer_ends_and_is_well_formed(markers):
    letters, generator = LETTERS[markers], torch.Generator().manual_seed(0)
    for trial, limit in itertools.product(range(30), (1, 6, 7, 12, 31)):
        rules, said = grammar(markers, limit, prompt=3), [2, 0, 1]
        bias = 8.0 * torch.randn(len(letters), generator=generator) * (trial % 3)
        while letters[said[-1]] != "e":
            scores = bias + torch.randn(1, len(letters), generator=generator)
            said.append(int(rules(torch.tensor([said]), scores).argmax()))
        answer = "".join(letters[i] for i in said[3:])
        assert len(answer) <= limit
        assert re.fullmatch(LANGUAGE[markers], answer), answer


class Scripted(torch.nn.Module):
    """Prefers the letters of a script, one a step, whatever was said."""

    def __init__(self, letters, script):
        super().__init__()
        self.letters, self.script = letters, script

    def say(self, recorder, prompt):
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
def test_a_well_formed_answer_is_left_as_it_is(markers, script):
    letters = LETTERS[markers]
    prompt = [[0, 3, 1]] * len(script)
    longest = max(map(len, script))
    for recorder in (StepRecorder(VOCAB, grammar(markers, longest, prompt=3)), StepRecorder(VOCAB)):
        said = Scripted(letters, script).say(recorder, prompt)
        assert [text[: text.index("e") + 1] for text in said] == script


def test_an_answer_without_end_is_closed_within_the_limit_and_one_without_box_gets_one():
    said = Scripted(LETTERS[2], ["Swwwwwwwwwwwwwww"]).say(StepRecorder(VOCAB, grammar(2, 12)), [[]])
    assert re.fullmatch(r"Sw{5}[01]{4}Ee", said[0][:12])
    said = Scripted(LETTERS[2], ["SeSxS0", "xxxxxx"]).say(StepRecorder(VOCAB, grammar(2)), [[], []])
    # the end, the foreign token and the nested start are ruled out
    assert said[0] == "Swwww0"


def test_nothing_is_remembered_between_calls_so_beams_may_change_places():
    rules, letters = grammar(2, 20), LETTERS[2]
    first = allowed(rules, letters, "Sw01")
    allowed(rules, letters, "")
    assert allowed(rules, letters, "Sw01") == first == {"0", "1"}


def test_steps_are_read_as_distributions_over_the_coordinates():
    grid = CoordGrid()
    vocab = CoordVocab(5, grid)
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 1010, generator=generator, dtype=torch.float32) * 3
    recorder = StepRecorder(vocab)
    assert recorder(torch.zeros(3, 1, dtype=torch.long), scores) is scores
    p = torch.softmax(scores.double(), dim=1)
    inside = p[:, 5:1005]
    q, values = inside / inside.sum(dim=1, keepdim=True), torch.arange(1000).double() / 1000
    mean = (q * values).sum(dim=1)
    spread = ((q * (values - mean[:, None]) ** 2).sum(dim=1)) ** 0.5
    for found, expected in (
        (recorder.expected[0], mean),
        (recorder.spread[0], spread),
        (recorder.mass[0], inside.sum(dim=1)),
        (recorder.log_p[0], p.max(dim=1).values.log()),
    ):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)


def test_feeding_back_says_the_bin_nearest_to_the_expectation_and_only_where_a_coordinate_is_said():
    vocab = CoordVocab(1, CoordGrid())
    scores = torch.full((2, 1003), -20.0)
    scores[:, 1 + 100], scores[:, 1 + 400] = 2.0, 2.2  # the likeliest is 400, the mean lies between
    scores[1, 0] = 9.0  # the second answer wants to say a word
    recorder = StepRecorder(vocab, feed_expectation=True)
    said = recorder(torch.zeros(2, 1, dtype=torch.long), scores).argmax(dim=1)
    p = torch.softmax(torch.tensor([2.0, 2.2]).double(), dim=0)
    assert said.tolist() == [1 + round(float(100 * p[0] + 400 * p[1])), 0]
    assert recorder.log_p[0][0] < -15  # nobody would have said that bin
