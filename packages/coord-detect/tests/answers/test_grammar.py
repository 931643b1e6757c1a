"""The grammar, on a scripted model with a vocabulary small enough to enumerate."""

import itertools
import re

import pytest
import torch

from coord_codec import GEOMETRIES, CoordGrid, CoordVocab, Geometry
from coord_detect.grammar.boxes import BoxRules
from coord_detect.grammar.coord_grammar import CoordGrammar
from coord_detect.grammar.served import AnswerForm
from coord_detect.model.token_statistics import StepRecorder

GRID = CoordGrid(bins=3, scale=3)
# One letter a token: w a word, 0 to 2 coordinates, e the end of the turn, x something foreign.
LETTERS = {2: "w012SEex", 4: "w012SRBEex"}
BOXES = [f"{x1}{y1}{x2}{y2}" for x1, y1, x2, y2 in itertools.product(range(3), repeat=4) if x1 < x2 and y1 < y2]
BOX = f"({'|'.join(BOXES)})"
LANGUAGE = {2: rf"(Sw+{BOX}E)*e", 4: rf"(Sw+RB{BOX}E)*e"}
VOCAB = CoordVocab(1, GRID)


def grammar(markers, limit=None, prompt=0, most=None, words="w", **more):
    letters = LETTERS[markers] + "v"
    ids, words = ([letters.index(c) for c in chosen] for chosen in ("SE" if markers == 2 else "SRBE", words))
    form = AnswerForm(VOCAB, tuple(ids), None, most, words=tuple(words), **more)
    return CoordGrammar(form, letters.index("e"), prompt_length=prompt, max_new_tokens=limit)


def allowed(rules, letters, beginning):
    ids = torch.tensor([[letters.index(c) for c in beginning]], dtype=torch.long)
    scores = rules(ids, torch.zeros(1, len(letters)))
    return {letters[i] for i in (scores[0] == 0).nonzero()[:, 0].tolist()}


def continuations(objects, limit, most, least=0):
    """The tokens that go on from every beginning of an answer of different `objects`, at most `most`, in the limit."""
    answers, frontier = {("e",)} if least == 0 else set(), {()}
    while frontier:
        longer = {(*a, o) for a in frontier for o in objects if o not in a and len(a) < most}
        frontier = {a for a in longer if sum(map(len, a)) < limit}
        answers |= {(*a, "e") for a in frontier if len(a) >= least}
    found = {}
    for answer in map("".join, answers):
        for cut in range(len(answer)):
            found.setdefault(answer[:cut], set()).add(answer[cut])
    return found


@pytest.mark.parametrize(("markers", "limit", "most"), [(2, 15, 9), (2, 23, 1), (2, 9, 9), (2, 7, 9), (4, 11, 9)])
def test_grammar_allows_a_token_exactly_if_a_well_formed_answer_goes_on_like_that(markers, limit, most):
    """Against an enumeration of the whole language up to the limit."""
    objects = [f"S{'w' * n}{'RB' * (markers == 4)}{box}E" for n in range(1, limit) for box in BOXES]
    rules, letters = grammar(markers, limit, most=most), LETTERS[markers]
    for beginning, expected in continuations([o for o in objects if len(o) < limit], limit, most).items():
        assert allowed(rules, letters, beginning) == expected, beginning


class OneOrTwoPoints(Geometry):
    """Of several lengths, as a polygon is."""

    name, least, most, keys = "polygon", 2, 4, ("line", "line_2d")

    def arrange(self, coordinates):
        return coordinates

    def from_box(self, bbox):
        return None


@pytest.mark.parametrize("markers", [2, 4])
@pytest.mark.parametrize(("geometry", "lengths"), [(GEOMETRIES["point"], (2,)), (OneOrTwoPoints(), (2, 4))])
def test_grammar_of_other_shapes_allows_their_numbers_of_coordinates_and_none_twice(markers, geometry, lengths, fuzz):
    """Against an enumeration of all answers of up to two shapes of a name; some of their beginnings."""
    shapes = ["".join(digits) for n in lengths for digits in itertools.product("012", repeat=n)]
    objects = [f"Sw{'RB' * (markers == 4)}{shape}E" for shape in shapes]
    rules = grammar(markers, most=2, geometry=geometry, spelled=((0,),))
    expected = continuations(objects, 99, 2)
    for beginning in fuzz.draw.sample(sorted(expected), len(fuzz.times(len(expected)))):
        assert allowed(rules, LETTERS[markers], beginning) == expected[beginning], beginning


@pytest.mark.parametrize("least", [1, 2])
def test_grammar_ends_no_answer_before_the_fewest_objects(least):
    objects = [f"Sw{box}E" for box in BOXES]
    rules = grammar(2, most=2, min_objects=least, spelled=((0,),))
    for beginning, expected in continuations(objects, 99, 2, least).items():
        assert allowed(rules, LETTERS[2], beginning) == expected, beginning
    short = grammar(2, limit=9, min_objects=2)  # one object fits, a second does not
    assert allowed(short, LETTERS[2], "Sw0011E") == {"e"}


@pytest.mark.parametrize("said", [1, 7, 8])
def test_grammar_never_leads_where_every_box_of_a_name_is_said(said):
    """Of nine boxes so many are said already; what is left is reachable, side by side, and nothing else."""
    rules = grammar(2)
    answer = "".join(f"Sw{box}E" for box in BOXES[:said])
    for begun in {box[:n] for box in BOXES[said:] for n in range(4)}:
        expected = {box[len(begun)] for box in BOXES[said:] if box.startswith(begun)}
        found = allowed(rules, LETTERS[2], answer + "Sw" + begun) - {"w"}
        assert found == expected, begun
    assert "1" in allowed(rules, LETTERS[2], answer + "Sww001")  # another name may have the same box


NAMES = ("w", "wv", "vvw")


def named(markers, limit=None):
    letters = LETTERS[markers] + "v"
    names = tuple(tuple(letters.index(c) for c in name) for name in NAMES)
    return letters, grammar(markers, limit, words="wv", spelled=names)


@pytest.mark.slow
@pytest.mark.parametrize(("markers", "limit"), [(2, 16), (2, 9), (2, 7), (4, 11), (4, 10)])
def test_grammar_allows_known_names_and_no_others_within_the_limit(markers, limit):
    """Against an enumeration of the language whose objects have one of three names."""
    objects = [f"S{name}{'RB' * (markers == 4)}{box}E" for name in NAMES for box in BOXES]
    letters, rules = named(markers, limit)
    for beginning, expected in continuations(objects, limit, 9).items():
        assert allowed(rules, letters, beginning) == expected, beginning


@pytest.mark.parametrize(
    ("beginnings", "may_follow"),
    [("", "Se"), ("S", "wv"), ("Sw", "v01"), ("Swv Svvw Svvw0", "01"), ("Sv Sw0011ESv", "v"), ("Svv", "w")],
)
def test_grammar_ends_a_known_name_where_it_is_complete(beginnings, may_follow):
    letters, rules = named(2)
    for beginning in beginnings.split(" "):
        assert allowed(rules, letters, beginning) == set(may_follow)


@pytest.mark.parametrize("names", [(), ((0,), ())])
def test_grammar_refuses_to_know_no_name_at_all(names):
    with pytest.raises(ValueError, match="names"):
        grammar(2, spelled=names)


@pytest.mark.slow
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
    [(2, ["Sw0112ESww1122Ee", "Sw0012Ee", "e"]), (4, ["SwRB0112ESwwRB1122Ee", "SwwRB0022Ee", "e"])],
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
    assert re.fullmatch(rf"Sw{{5}}{BOX}Ee", answers[0][:12])
    answers = Scripted(LETTERS[2], ["SeSxS0", "xxxxxx"]).answer(StepRecorder(VOCAB, grammar(2)), [[], []])
    # the end, the foreign token and the nested start are ruled out
    assert answers[0] == "Swwww0"


def test_grammar_remembers_nothing_between_calls_so_beams_may_change_places():
    rules, letters = grammar(2, 20), LETTERS[2]
    first = allowed(rules, letters, "Sw01")
    allowed(rules, letters, "")
    assert allowed(rules, letters, "Sw01") == first == {"1", "2"}


@pytest.mark.slow
def test_long_answer_is_read_token_by_token_and_the_same_however_it_comes():
    """The name of each box is asked for once; rows that change places, shrink or start anew are as new ones."""
    asked = []
    rules = BoxRules(VOCAB, lambda between: asked.append(between) or between)
    answer = [5, 1, 1, 2, 2, 6, 5, 5, 1, 1, 3, 3, 6, 5, 1, 1, 2, 3, 6] * 20
    for length in range(len(answer) + 1):
        assert rules.read(answer[:length], 3) == BoxRules(VOCAB, lambda between: between).read(answer[:length])
    boxes = sum(token in VOCAB.ids for token in answer) // 4
    assert len(asked) == boxes
    for row, beginning in ((3, answer[:9]), (3, answer[:40]), (0, answer[:40]), (3, answer[1:30]), (3, [])):
        assert rules.read(beginning, row) == BoxRules(VOCAB, lambda between: between).read(beginning)
