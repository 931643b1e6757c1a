"""Drafted answers equal those of plain decoding: tokens, ends and probabilities."""

from dataclasses import replace

import pytest
import torch
from PIL import Image
from tiny_run import tiny_config
from transformers import AutoTokenizer

from coord_codec import CoordVocab, InputError, Instance, encode_target
from coord_detect.answers.generate import answer_images, prompt_inputs
from coord_detect.model.checkpoint import open_checkpoint
from coord_detect.settings.decoding import Decoding
from coord_detect.speed import of_checkpoint
from coord_detect.speed.decode import Rules, _Row, _Verifier
from coord_detect.speed.forced import ForcedTokens
from coord_detect.speed.of_checkpoint import check_speed
from coord_detect.speed.passes import Passes

NAMES = {"red circle", "red square", "blue circle"}
NUMBERS = ("coord_logprobs", "coord_expected", "coord_spread", "coord_quantiles", "coord_mass", "desc_logprobs")


@pytest.fixture(scope="module")
def opened(tiny_model):
    """The tiny model with noise in its weights, so that answers to different images differ."""
    checkpoint = open_checkpoint(tiny_model, tiny_config())
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in checkpoint.model.model.language_model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return checkpoint


@pytest.fixture(scope="module")
def images():
    """Of different sizes, so that the prompts of a batch are padded."""
    sizes = ((96, 96), (64, 32), (32, 96), (64, 64))
    return [Image.effect_noise(size, 90 + 10 * at).convert("RGB") for at, size in enumerate(sizes)]


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one["text"] == other["text"]
        assert one["finish_reason"] == other["finish_reason"]
        assert one.keys() == other.keys()
        for name in one.keys() & set(NUMBERS):
            torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(other[name]), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("markers", "grammar", "limit"),
    [
        ("obj", "none", 40),
        ("obj", "markers", 60),
        ("obj", "markers", 13),  # ends within the second object
        ("obj", "names", 44),
        ("qwen", "names", 60),
    ],
)
def test_exact_equals_plain_alone_and_in_padded_batches(markers, grammar, limit, opened, images, monkeypatch):
    monkeypatch.setattr("coord_detect.speed.cache._GROWTH", 2)
    data = tiny_config(data={"markers": markers}).data
    asked = (data.model_copy(update={"max_objects": 3}), Decoding(grammar=grammar), limit)
    asked += (NAMES if grammar == "names" else None,)
    expected = answer_images(opened, images, *asked)
    assert len({answer["text"] for answer in expected}) > 1
    assert_equal(answer_images(opened, images, *asked, speed="exact"), expected)
    assert_equal(answer_images(opened, images[2:3], *asked, speed="exact"), expected[2:3])


def _places(passes):
    held = [
        passes._shift_B,
        passes._attended_BS,
        *(x for layer in passes._cache.layers for x in (layer.keys, layer.values)),
    ]
    return [x.data_ptr() for x in held]


@pytest.mark.slow
def test_drafts_after_any_beginning_of_a_checkpoints_answer_are_what_follows(tiny_model):
    forced = ForcedTokens.of_checkpoint(tiny_model)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    objects = [{"desc": "red circle", "bbox": [0.1, 0.2, 0.5, 0.6]}, {"desc": "blue circle", "bbox": [0, 0, 0.3, 0.3]}]
    tokens = tokenizer(encode_target(Instance(image="x", objects=objects)))["input_ids"]
    drafted = [forced.following(tokens[:end], most=2) for end in range(len(tokens))]
    assert all(draft == tokens[end : end + len(draft)] for end, draft in enumerate(drafted[:-1]))
    assert {len(draft) for draft in drafted} >= {0, 2}
    assert forced.following(tokens[1:2]) == []


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.parametrize(("markers", "grammar"), [("obj", "none"), ("qwen", "names")])
def test_passes_of_fixed_shapes_answer_as_generate_does(markers, grammar, opened, images, monkeypatch):
    """Those of a GPU, which captures them, on a CPU."""
    data = tiny_config(data={"markers": markers, "max_objects": 3}).data
    asked = (images, data, Decoding(grammar=grammar), 60, NAMES if grammar == "names" else None)
    expected = answer_images(opened, *asked)
    shapes = set()
    monkeypatch.setattr(of_checkpoint, "has_fixed_shapes", lambda checkpoint: True)
    monkeypatch.setattr("coord_detect.answers.generate.has_fixed_shapes", lambda checkpoint: True)
    fixed = replace(opened)  # whose passes none has used yet
    hook = opened.model.register_forward_pre_hook(
        lambda module, args, given: shapes.add(tuple(given["attention_mask"].shape)), with_kwargs=True
    )
    assert_equal(answer_images(fixed, *asked), expected)
    buffers = _places(fixed.passes[0])
    for batch in (images[1:3], images[::-1], images):  # others' padding, and fewer rows than the buffers have
        assert_equal(answer_images(fixed, batch, *asked[1:]), [expected[images.index(image)] for image in batch])
    hook.remove()
    assert _places(fixed.passes[0]) == buffers
    assert len({shape[2:] for shape in shapes if len(shape) == 4}) == 1  # tokens of a pass, positions it reads
    assert {shape[0] for shape in shapes if len(shape) == 4} <= {1, 2, 4}
    assert_equal(answer_images(replace(opened), *asked, speed="exact"), expected)


@torch.inference_mode()
def test_buffers_keep_nothing_of_other_rows_and_batches(opened):
    """Rows are padded, once by more than the next prompt's length, and move to the front."""
    small, large = (Image.effect_noise((side, side), 90).convert("RGB") for side in (32, 416))
    pad, tokens = opened.processor.tokenizer.pad_token_id, [[40, 50, 60]]

    def after(passes, *images, padding=0):
        """The logits of a pass behind the last image, in a batch with the others."""
        inputs = prompt_inputs(opened, list(images), tiny_config().data.prompt)
        shape = inputs["input_ids"].shape
        for name, value in inputs.items():
            if value.shape == shape:
                filling = pad if name == "input_ids" else 0
                inputs[name] = torch.nn.functional.pad(value, (padding, 0), value=filling)
        passes.begin(inputs, [], 20)
        passes.keep([len(images) - 1])
        return passes([passes.prompt_length], tokens)[:, :3]

    buffers = Passes(opened.model, pad, fixed_shapes=True)
    for batch, padding in (((small, large), 0), ((large, small), 60), ((small,), 0)):
        alone = after(Passes(opened.model, pad), batch[-1])
        torch.testing.assert_close(after(buffers, *batch, padding=padding), alone, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_eager_attention_takes_a_mask_of_its_own(opened, images):
    data, decoding = tiny_config().data, Decoding(grammar="markers")
    opened.model.set_attn_implementation("eager")
    try:
        expected = answer_images(opened, images[:2], data, decoding, 30)
        assert_equal(answer_images(opened, images[:2], data, decoding, 30, speed="exact"), expected)
    finally:
        opened.model.set_attn_implementation("sdpa")


BOX = {"bbox": (0.1, 0.2, 0.6, 0.7)}
POINT = {"geometry": {"type": "point", "coordinates": [0.4, 0.5]}}


@pytest.mark.parametrize(
    ("data", "shape"),
    [({"markers": "obj"}, BOX), ({"markers": "qwen"}, BOX), ({"style": "json"}, BOX), ({"geometry": "point"}, POINT)],
)
def test_forced_tokens_draft_all_of_an_answer_but_names_and_coordinates(data, shape, opened):
    section, tokenizer = tiny_config(data=data).data, opened.processor.tokenizer
    objects = [{"desc": name, **shape} for name in ("red circle", "blue square", "red square")]
    text = encode_target(
        Instance(image="x", objects=objects),
        markers=section.markers,
        style=section.style,
        order="given",
        geometry=section.shape,
    )
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    words = {i for o in objects for i in tokenizer(o["desc"], add_special_tokens=False)["input_ids"]}
    vocab = CoordVocab.from_tokenizer(tokenizer)
    forced, at, drafted = ForcedTokens.for_tokenizer(tokenizer, section), 0, set()
    while at < len(ids):
        guess = forced.draft(ids[:at])
        same = next((n for n, pair in enumerate(zip(guess, ids[at:], strict=False)) if pair[0] != pair[1]), len(guess))
        drafted |= set(range(at, at + min(same, len(ids) - at)))
        at += same + 1
    coordinates = {i for i, token in enumerate(ids) if token in vocab.ids}
    behind = set(range(len(ids))) - drafted
    # A name may go on, so that what ends it is not drafted; nor is the end of the last object, with none behind it.
    name_end = tokenizer(text.split("red circle")[1].split("<|coord_")[0], add_special_tokens=False)["input_ids"][:1]
    others = words | {ids[i] for i in coordinates} | {ids[-1], *name_end}
    assert behind >= coordinates and {ids[i] for i in behind} <= others


def test_forced_tokens_complete_a_name_of_which_there_is_one(opened):
    tokenizer, section = opened.processor.tokenizer, tiny_config().data
    forced = ForcedTokens.for_tokenizer(tokenizer, section, {"red circle", "blue circle"})
    red, *rest = tokenizer("red circle", add_special_tokens=False)["input_ids"]
    start, *before = section.marker_ids(tokenizer)[:-1]
    assert forced.draft([start, red]) == [*rest, *before]


@pytest.mark.slow
@pytest.mark.parametrize("style", ["markers", "json"])
def test_forced_tokens_go_on_behind_a_name_that_is_not_known(style, opened):
    """And from within an answer, whose first objects are not given."""
    section, tokenizer = tiny_config(data={"style": style}).data, opened.processor.tokenizer
    text = section.target_text(
        Instance(image="x", objects=[{"desc": n, **BOX} for n in ("red", "green", "blue")]), True
    )
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    forced = ForcedTokens.for_tokenizer(tokenizer, section, {"red", "blue"})
    sides = [place for place, token in enumerate(ids) if token in CoordVocab.from_tokenizer(tokenizer).ids]
    middle = slice(sides[3] + 1, sides[7] + 1)  # of the second object
    drafts = [forced.draft(ids[:end]) for end in range(len(ids))]
    assert all(drafts[side + 1] for side in sides[3:8:4])
    for tokens in (ids[: middle.stop], [40, 50, *ids[middle]]):
        assert forced.following(tokens) == drafts[middle.stop] == ids[middle.stop :][: len(drafts[middle.stop])]


@pytest.mark.parametrize(
    ("drafts", "likeliest", "expected"),
    [
        ([12, 13, 14], [12, 13, 14, 1], [12, 13, 14, 1]),
        ([12, 13, 14], [12, 15, 14, 1], [12, 15]),
        ([1, 2, 0], [1, 5, 0, 1], [1, 5]),  # 5 ends the answer
    ],
)
def test_drafts_are_accepted_up_to_the_first_that_differs(drafts, likeliest, expected):
    verifier = _Verifier(ForcedTokens(), Rules(5, 9, CoordVocab(10)), None, 1)
    row = _Row(0, drafted=drafts)
    logits = torch.nn.functional.one_hot(torch.tensor([likeliest]), 1010).float()
    verifier.verify([row], logits)
    assert row.tokens == expected and row.done == (5 in expected)
    log_p = verifier.read()[0]["log_p"]
    assert log_p == pytest.approx([float(logits[0, 0].log_softmax(0).max())] * len(expected))


class Rising:
    """Allows tokens above the last."""

    def allowed(self, answers, size, device):
        return torch.stack([torch.arange(size, device=device) > max([0, *tokens[-1:]]) for _, tokens in answers])


def test_grammar_restricts_what_follows_a_draft():
    verifier = _Verifier(ForcedTokens(), Rules(5, 9, CoordVocab(10)), Rising(), 1)
    row = _Row(0, drafted=[12, 15, 14])
    logits = torch.zeros(1, 4, 1010)
    for depth, likeliest in enumerate([[12], [13], [12, 16], [17]]):
        logits[0, depth, likeliest] = torch.tensor([3.0, 2.0])[: len(likeliest)]
    verifier.verify([row], logits)
    assert row.tokens == [12, 13]
    row.drafted = [12]  # below 13: it may not follow
    verifier.verify([row], logits[:, 2:])
    assert row.tokens == [12, 13, 16]


def test_speeds_that_a_model_cannot_have_are_refused_by_name(opened):
    config = tiny_config(evaluation={"speed": "exact"})
    check_speed(config, opened.family)
    other = type("Model", (), {"config": type("Config", (), {"model_type": "qwen3_5"})})
    with pytest.raises(InputError, match=r"the model is a Qwen3.5: the state of its gated-delta layers"):
        check_speed(config, replace(opened, model=other).family)
