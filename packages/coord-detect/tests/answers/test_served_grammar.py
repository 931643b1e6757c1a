"""The grammar that servers compile, compiled: llguidance's Lark, xgrammar's EBNF, and the processor over Lark."""

import json
import re

import numpy as np
import pytest
import torch
from tiny_model import tiny_tokenizer

from coord_codec import GEOMETRIES, Instance, Object, encode_target
from coord_codec.geometry.polygon import PolygonGeometry
from coord_detect.grammar.coord_grammar import CoordGrammar
from coord_detect.grammar.served import AnswerForm, ebnf_grammar, lark_grammar
from coord_eval import parse_answer

llguidance = pytest.importorskip("llguidance")
NAMES = ("blue circle", 'the "big" square')
WAYS = [("obj", "markers"), ("qwen", "markers"), ("obj", "json")]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def lark_matcher(tokenizer, form):
    import llguidance.hf

    tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=len(tokenizer))
    grammar = llguidance.grammar_from("lark", lark_grammar(form))
    assert not llguidance.LLMatcher.validate_grammar(grammar, tokens)
    start = llguidance.LLMatcher(tokens, grammar)

    def accepts(ids):
        matcher = start.deep_copy()
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    return accepts


def ebnf_matcher(tokenizer, form):
    xgrammar = pytest.importorskip("xgrammar")
    info = xgrammar.TokenizerInfo.from_huggingface(
        tokenizer, vocab_size=len(tokenizer), stop_token_ids=[tokenizer.eos_token_id]
    )
    compiled = xgrammar.GrammarCompiler(info).compile_grammar(ebnf_grammar(form))

    def accepts(ids):
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(map(matcher.accept_token, ids)) and matcher.accept_token(tokenizer.eos_token_id)

    return accepts


def written(objects, markers, style):
    instance = Instance(image="x.png", objects=[Object(desc=d, bbox=b) for d, b in objects])
    return encode_target(instance, markers=markers, style=style, order="given")


@pytest.mark.slow
@pytest.mark.parametrize(("markers", "style"), WAYS)
@pytest.mark.parametrize("engine", [lark_matcher, ebnf_matcher])
def test_servers_accept_what_targets_are_and_refuse_the_rest(tokenizer, engine, markers, style):
    form = AnswerForm.for_tokenizer(tokenizer, markers, style=style, names=NAMES, max_objects=2)
    accepts = engine(tokenizer, form)
    first, second = (NAMES[0], (0.1, 0.2, 0.3, 0.4)), (NAMES[1], (0.0, 0.5, 0.999, 0.9))
    good = [written(objects, markers, style) for objects in ([], [first], [second, first])]
    one, two = good[1], written([first, second, ("blue circle", (0.5, 0.5, 0.6, 0.6))], markers, style)
    side = re.search(r"<\|coord_\d+\|>(, )?", one)[0]
    bad = [one.replace(side, "", 1), one.replace(side, side + side, 1), two, one.replace("blue", "red"), one[:-1]]
    bad += [one.replace(side, side.replace("coord", "cord"), 1), one + "x"]
    for text in good:
        assert accepts(tokenizer(text, add_special_tokens=False)["input_ids"]), text
    for text in bad:
        assert not accepts(tokenizer(text, add_special_tokens=False)["input_ids"]), text
    if engine is lark_matcher:
        for swapped in ((0.3, 0.2, 0.1, 0.4), (0.1, 0.4, 0.3, 0.4)):
            text = one
            for was, now in zip((0.1, 0.2, 0.3, 0.4), swapped, strict=True):
                text = text.replace(f"coord_{round(was * 1000)}|", f"coord_@{round(now * 1000)}|")
            assert not accepts(tokenizer(text.replace("@", ""), add_special_tokens=False)["input_ids"]), text


SHAPES = {
    "point": (0.1, 0.2),
    "oriented": (0.5, 0.1, 0.9, 0.5, 0.5, 0.9, 0.1, 0.5),
    "polygon": (0.5, 0.1, 0.9, 0.5, 0.5, 0.9, 0.2, 0.7, 0.1, 0.5),
}


@pytest.mark.parametrize("style", ["markers", "json"])
@pytest.mark.parametrize("engine", [lark_matcher, ebnf_matcher])
@pytest.mark.parametrize("name", SHAPES)
def test_servers_accept_shapes_of_their_numbers_of_coordinates_alone(tokenizer, engine, style, name):
    kind = PolygonGeometry(6) if name == "polygon" else GEOMETRIES[name]
    form = AnswerForm.for_tokenizer(tokenizer, "qwen", style=style, max_objects=3, geometry=kind)
    accepts = engine(tokenizer, form)
    found = Object(desc="cat", geometry={"type": name, "coordinates": SHAPES[name]})

    def said(count):
        written = Instance(image="x.png", objects=[found] * count)
        return encode_target(written, markers="qwen", style=style, order="given", geometry=kind)

    def with_first(count):
        between = ", " if style == "json" else ""
        return re.sub(r"(<\|coord_\d+\|>(, )?)+", between.join(["<|coord_5|>"] * count), said(2), count=1)

    counts = range(0, 16)
    texts = {said(2): True, said(3): True, said(4): False, said(1): True}
    texts |= {with_first(count): kind.fits(count) and count <= kind.longest for count in counts}
    for text, fits in texts.items():
        assert accepts(tokenizer(text, add_special_tokens=False)["input_ids"]) is fits, text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "style"), [*((name, "markers") for name in SHAPES), ("oriented", "json")])
def test_shapes_of_noise_are_whole_and_none_comes_twice(tokenizer, name, style):
    """With few bins in use so that repetitions would be frequent."""
    kind = PolygonGeometry(4) if name == "polygon" else GEOMETRIES[name]
    shared = {"max_objects": 3, "geometry": kind}
    form = AnswerForm.for_tokenizer(tokenizer, "obj", style=style, names=NAMES[:1], **shared)
    processor = CoordGrammar.for_tokenizer(
        tokenizer, "obj", style=style, prompt_length=0, descriptions=NAMES[:1], **shared
    )
    ends = [tokenizer.eos_token_id, *tokenizer("[]]", add_special_tokens=False)["input_ids"]]

    def few_bins(ids, scores):
        scores[:, form.vocab.first_id : form.vocab.first_id + 2] += 30
        scores[:, ends] -= 30
        return processor(ids, scores)

    answers = answers_of_noise(tokenizer, few_bins, 15, 400)
    assert len(answers) == 15
    for ids in answers:
        found = parse_answer(tokenizer.decode(ids), geometry=name)
        assert not [drop for drop in found.dropped if drop.reason != "no_area"], tokenizer.decode(ids)
        pieces = tokenizer.decode(ids).split("blue circle")[1:]
        assert 1 <= len(pieces) <= 3 and all(kind.fits(piece.count("<|coord_")) for piece in pieces)
        shapes = [tuple(re.findall(r"coord_(\d+)", piece)) for piece in pieces]
        assert len(set(shapes)) == len(shapes)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [lark_matcher, ebnf_matcher])
def test_coordinates_are_tokens_and_never_their_spelling(tokenizer, engine):
    """As text, `<|coord_5|>` may be spelled by its characters; a free name may not begin to spell it either."""
    form = AnswerForm.for_tokenizer(tokenizer, "obj", names=None, max_objects=2)
    accepts = engine(tokenizer, form)
    ids = tokenizer(written([("cat", (0.1, 0.2, 0.3, 0.4))], "obj", "markers"), add_special_tokens=False)["input_ids"]
    assert accepts(ids)
    place = next(i for i, token in enumerate(ids) if token in form.vocab.ids)
    spelled = [t for c in "<|coord_100|>" for t in tokenizer(c, add_special_tokens=False)["input_ids"]]
    assert tokenizer.decode(spelled) == tokenizer.decode([ids[place]])
    assert not accepts([*ids[:place], *spelled, *ids[place + 1 :]])


@pytest.mark.slow
@pytest.mark.parametrize("engine", [lark_matcher, ebnf_matcher])
@pytest.mark.parametrize("name", ["cat", "a\tcat", "a\rcat", "a\x1fcat"])
def test_free_names_of_json_have_no_character_that_would_have_to_be_escaped(tokenizer, engine, name):
    """Against Python's own reader of JSON, which takes no control characters."""
    accepts = engine(tokenizer, AnswerForm.for_tokenizer(tokenizer, "obj", style="json"))
    text = written([("cat", (0.1, 0.2, 0.3, 0.4))], "obj", "json").replace("cat", name)
    try:
        json.loads(re.sub(r"<\|coord_(\d+)\|>", r"\1", text))
        is_json = True
    except json.JSONDecodeError:
        is_json = False
    assert accepts(tokenizer(text, add_special_tokens=False)["input_ids"]) is is_json


def answers_of_noise(tokenizer, processor, count, steps):
    """Answers of a model that knows nothing: random logits under a processor."""
    generator = torch.Generator().manual_seed(7)
    bias = torch.zeros(len(tokenizer))
    bias[tokenizer.eos_token_id] = 4.0  # ends are one of two thousand tokens
    ids = torch.zeros(count, 0, dtype=torch.long)
    for _ in range(steps):
        scores = torch.randn(count, len(tokenizer), generator=generator) * 2 + bias
        ids = torch.cat([ids, processor(ids, scores).argmax(dim=1, keepdim=True)], dim=1)
    return [row[: row.index(tokenizer.eos_token_id)] for row in ids.tolist() if tokenizer.eos_token_id in row]


@pytest.mark.slow
@pytest.mark.parametrize(("markers", "style"), WAYS)
def test_answers_of_noise_are_whole(tokenizer, markers, style):
    """Whole by the parser, with area, without duplicates, in the served language of both engines."""
    form = AnswerForm.for_tokenizer(tokenizer, markers, style=style, names=NAMES, max_objects=3)
    accepts = [engine(tokenizer, form) for engine in (lark_matcher, ebnf_matcher)]
    limits = {"style": style, "max_objects": 3, "max_new_tokens": 60}
    processor = CoordGrammar.for_tokenizer(tokenizer, markers, prompt_length=0, descriptions=NAMES, **limits)
    answers = answers_of_noise(tokenizer, processor, 80, 200 if style == "json" else 60)
    assert len(answers) == 80
    for ids in answers:
        assert all(accept(ids) for accept in accepts)
        text = tokenizer.decode(ids)
        found = parse_answer(text)
        assert not found.dropped, (text, found.dropped)
        objects = [(o.desc, tuple(o.box)) for o in found.objects]
        assert len(set(objects)) == len(objects) == text.count("<|coord_") // 4 <= 3
        assert all(x1 < x2 and y1 < y2 and name in NAMES for name, (x1, y1, x2, y2) in objects)
        if style == "json":
            assert len(json.loads(re.sub(r"<\|coord_(\d+)\|>", r"\1", text))) == len(objects)


@pytest.mark.slow
def test_beams_may_change_places(tokenizer):
    processor, fresh = (
        CoordGrammar.for_tokenizer(tokenizer, "obj", prompt_length=0, descriptions=NAMES, max_objects=3)
        for _ in range(2)
    )
    ids = [
        tokenizer(written([(name, (0.1, 0.2, 0.3, 0.4))], "obj", "markers"), add_special_tokens=False)["input_ids"]
        for name in NAMES
    ]
    scores = torch.zeros(2, len(tokenizer))
    processor(torch.tensor([row[:3] for row in ids]), scores)
    swapped = torch.tensor([row[:4] for row in reversed(ids)])
    assert np.array_equal(processor(swapped, scores).numpy(), fresh(swapped, scores).numpy())


@pytest.mark.parametrize("options", [{"names": []}, {"names": ["a", ""]}, {"max_objects": 0}])
def test_a_form_without_names_or_objects_is_refused(tokenizer, options):
    with pytest.raises(ValueError, match=r"names|max_objects"):
        AnswerForm.for_tokenizer(tokenizer, "obj", **options)
