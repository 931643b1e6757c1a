"""A checkpoint in this process, a tiny one with random weights: what its answers hold, and what each option changes."""

from dataclasses import replace
from random import Random

import pytest
import torch
from fakes import card_of
from PIL import Image
from tiny_model import tiny_checkpoint

from coord_codec import InputError
from coord_detect.answers import generate, local
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.descriptions import description_fields
from coord_detect.answers.generate import answer_images, prompt_inputs
from coord_detect.answers.local import LocalEngine
from coord_detect.answers.token_limit import token_limit, token_limit_without_tokenizer
from coord_detect.detection.calibrate import write_calibration
from coord_detect.model.card import calibration_key
from coord_detect.model.checkpoints import mark_complete
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.load import load_settings
from coord_detect.settings.record import Settings
from coord_detect.settings.sections import Asking

NAMES = frozenset({"cat", "a dog"})
NUMBERS = ("coord_logprobs", "coord_expected", "coord_spread", "coord_quantiles", "coord_mass", "desc_logprobs")


def settings(*words):
    return load_settings(Settings, None, words)[0]


@pytest.fixture(scope="module")
def images():
    """Of different sizes, so that the prompts of a batch are padded."""
    sizes = ((64, 64), (64, 32), (32, 64))
    return [Image.frombytes("RGB", size, Random(at).randbytes(3 * size[0] * size[1])) for at, size in enumerate(sizes)]


def equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert {k: v for k, v in one.items() if k not in NUMBERS} == {
            k: v for k, v in other.items() if k not in NUMBERS
        }
        for name in one.keys() & set(NUMBERS):
            torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(other[name]), rtol=1e-3, atol=1e-4)


@torch.inference_mode()
def scored(image, ids, data):
    """The statistics of an answer's tokens, from the logits of one pass over prompt and answer, in double precision."""
    opened = tiny_checkpoint()
    inputs = prompt_inputs(opened, [image], data.prompt)
    length = inputs["input_ids"].shape[1]
    for name, value in inputs.items():
        if value.shape == (1, length):
            more = (
                torch.tensor([ids]) if name == "input_ids" else torch.full((1, len(ids)), int(name == "attention_mask"))
            )
            inputs[name] = torch.cat([value, more.to(value)], dim=1)
    logits = opened.model(**inputs).logits[0, length - 1 : -1].double()
    first = opened.vocab.first_id
    found = {name: [] for name in ("coord_logprobs", "coord_expected", "coord_mass")}
    for token, row in zip(ids, logits, strict=True):
        if token in opened.vocab.ids:
            p = row.softmax(0)
            inside = p[first : first + 1000]
            found["coord_mass"].append(float(inside.sum()))
            found["coord_expected"].append(float(inside @ torch.arange(1000).double() / inside.sum() / 1000))
            found["coord_logprobs"].append(float(p[token].log()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("grammar", ["none", "markers"])
def test_figures_of_an_answer_are_those_of_the_models_logits(images, grammar, monkeypatch):
    data, own, generated = Asking(max_objects=2), generate.answer_record, []
    monkeypatch.setattr(generate, "answer_record", lambda *given: generated.append(given[1]) or own(*given))
    found = answer_images(tiny_checkpoint(), images[:2], data, Decoding(grammar=grammar), 24)
    assert len({record["text"] for record in found}) == 2
    for image, ids, record in zip(images, generated, found, strict=False):
        expected = scored(image, ids, data)
        names = expected if grammar == "none" else ("coord_expected", "coord_mass")
        for name in names:
            torch.testing.assert_close(torch.tensor(record[name]), torch.tensor(expected[name]), rtol=1e-3, atol=1e-4)
        assert len(record["coord_quantiles"]) == len(expected["coord_mass"]) == record["text"].count("<|coord_")
    if grammar == "markers":
        assert all(record["coord_logprobs"] and record["text"].startswith("<|object_ref_start|>") for record in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "grammar", "limit"),
    [("markers", "none", 20), ("markers", "markers", 24), ("markers", "names", 30), ("json", "names", 24)],
)
def test_exact_answers_and_those_of_fixed_shapes_are_plain_ones(images, monkeypatch, style, grammar, limit):
    """Alone and in padded batches; a grammar makes objects end, so that rows leave the batch."""
    monkeypatch.setattr("coord_detect.speed.cache._GROWTH", 2)
    opened = tiny_checkpoint()
    asked = (
        Asking(max_objects=2, style=style),
        Decoding(grammar=grammar),
        limit,
        NAMES if grammar == "names" else None,
    )
    expected = answer_images(opened, images, *asked)
    equal(answer_images(replace(opened), images, *asked, speed="exact"), expected)
    equal(answer_images(replace(opened), images[1:2], *asked, speed="exact"), expected[1:2])
    for place in ("coord_detect.speed.of_checkpoint", "coord_detect.answers.generate"):
        monkeypatch.setattr(f"{place}.has_fixed_shapes", lambda checkpoint: True)
    fixed = replace(opened)
    for batch in (images[:1], images, images[::-1]):  # buffers that are too small, and those of another batch
        found = answer_images(fixed, batch, *asked)
        equal(found, [expected[images.index(image)] for image in batch])
    equal(answer_images(replace(opened), images, *asked, speed="exact"), expected)


def test_answers_that_are_held_to_names_have_the_probability_of_a_name_among_all(images):
    """By the grammar that the decoding has without them; `exact` scores alike."""
    opened, data = tiny_checkpoint(), Asking(max_objects=2)
    plain = answer_images(opened, images, data, Decoding(grammar="markers"), 60, only=NAMES)
    for record in plain:
        names = record["text"].split("<|object_ref_start|>")[1:]
        assert names and all(name.partition("<|")[0] in NAMES for name in names)
        assert record["desc_token_counts"] == [len(name.partition("<|")[0]) for name in names]
    equal(answer_images(opened, images, data, Decoding(grammar="markers"), 60, only=NAMES, speed="exact"), plain)
    held = answer_images(opened, images, data, Decoding(grammar="names"), 60, NAMES)
    assert [record["text"] for record in held] == [record["text"] for record in plain]
    assert all(sum(o["desc_logprobs"]) > sum(p["desc_logprobs"]) for o, p in zip(held, plain, strict=True))
    free = answer_images(opened, images, data, Decoding(), 60, only=NAMES)
    assert [record["text"] for record in free] == [record["text"] for record in plain]
    assert all(sum(p["desc_logprobs"]) > sum(f["desc_logprobs"]) for p, f in zip(plain, free, strict=True))
    with pytest.raises(InputError, match="names limits answers to the names in the annotations; there are none"):
        answer_images(opened, images, data, Decoding(grammar="names"), 60)


@pytest.mark.slow
def test_number_of_objects_shape_and_style_limit_an_answer(images):
    def texts(limit=70, **data):
        decoding = Decoding(grammar="names")
        return [r["text"] for r in answer_images(tiny_checkpoint(), images, Asking(**data), decoding, limit, NAMES)]

    for most in (1, 2):
        assert max(text.count("<|box_end|>") for text in texts(max_objects=most)) <= most
    assert all(text.count("<obj_end>") == text.count("<obj_start>") for text in texts(markers="obj", max_objects=2))
    assert all(text.startswith("[") for text in texts(style="json", max_objects=1))
    for text in texts(geometry="point", max_objects=1):
        assert text.count("<|coord_") in (0, 2)


def test_grammar_of_a_batch_has_every_setting_and_names_only_where_they_limit(monkeypatch):
    seen = []
    monkeypatch.setattr(generate.CoordGrammar, "for_tokenizer", lambda *given, **named: seen.append((given, named)))
    data = Asking(markers="obj", style="json", geometry="polygon", max_vertices=5, max_objects=7)
    for grammar, names in (("none", NAMES), ("markers", NAMES), ("names", NAMES)):
        generate.grammar_of("tokenizer", data, grammar, 11, 13, names)
    shared = {"prompt_length": 11, "max_new_tokens": 13, "style": "json", "max_objects": 7, "geometry": data.shape}
    assert seen == [(("tokenizer", "obj"), shared | {"descriptions": held}) for held in (None, NAMES)]
    assert data.shape.max_vertices == 5


def test_prompt_system_message_and_factor_of_pixels_reach_the_model(images):
    opened = tiny_checkpoint()
    seen = []

    def model_inputs(**given):
        seen.append(given)
        raise InterruptedError

    stub = replace(opened, model=type("Stub", (), {"generate": staticmethod(model_inputs), "device": "cpu"})())
    large = [Image.new("RGB", (256, 256))]
    for options in ({}, {"prompt": "Which?"}, {"pixels": 4.0}):
        with pytest.raises(InterruptedError):
            answer_images(
                replace(stub, model=_with_config(stub.model)), large, Asking(prompt="Where?"), Decoding(), 7, **options
            )
    texts = [opened.processor.tokenizer.decode(given["input_ids"][0]) for given in seen]
    assert all("system\nbe brief<" in text for text in texts)
    assert ["Where?" in text for text in texts] == [True, False, True] and "Which?" in texts[1]
    patches = [int(given["image_grid_thw"].prod()) for given in seen]
    assert patches[0] == patches[1] == (64 // 16) ** 2 and patches[2] == (128 // 16) ** 2
    limits = [given["generation_config"] for given in seen]
    assert {limit.max_new_tokens for limit in limits} == {7} and not any(limit.do_sample for limit in limits)
    assert limits[0].eos_token_id == opened.processor.tokenizer.eos_token_id


def _with_config(model):
    model.config = tiny_checkpoint().model.config
    model.device = torch.device("cpu")
    return model


def test_answer_is_cut_at_its_end_and_has_no_figures_of_coordinates_without_tokens():
    opened = tiny_checkpoint()
    tokenizer = opened.processor.tokenizer
    ids = tokenizer("<|object_ref_start|>ab<|object_ref_end|><|box_start|><|coord_1|><|coord_2|>")["input_ids"]
    values = {name: [float(n) for n in range(20)] for name in ("log_p", "expected", "spread", "mass", "log_coord")}
    values["quantiles"] = [[float(n)] * 7 for n in range(20)]
    markers = Asking().marker_ids(tokenizer)
    for end, reason in (([tokenizer.eos_token_id, 0], "stop"), ([], "length")):
        record = generate.answer_record(opened, [*ids, *end], values, markers)
        assert (record["text"], record["finish_reason"]) == (tokenizer.decode(ids), reason)
        assert record["coord_logprobs"] == record["coord_mass"] == record["coord_spread"] == [5.0, 6.0]
        assert record["coord_quantiles"] == [[5.0] * 7, [6.0] * 7]
        assert (record["desc_logprobs"], record["desc_token_counts"]) == ([1.0, 2.0], [2])
        forced = generate.answer_record(opened, [*ids, *end], values, markers, forced=True)
        assert forced["desc_logprobs"] == [1.0, 2.0 + 3.0]  # and that of its end, the marker behind it
    assert "desc_logprobs" not in generate.answer_record(opened, ids, values, None)
    assert generate.answer_record(replace(opened, vocab=None), ids, values, markers).keys() == {"text", "finish_reason"}


@pytest.mark.parametrize(
    ("tokens", "values", "counts"),
    [("SabE12F", [1, 2], [2]), ("SE12", [], [0]), ("S12", [], [0]), ("abE12", [], []), ("SaE12SbcE", [1, 6, 7], [1, 2]),
     ("SaE12bSc", [1, 7], [1, 1]), ("SaSb", [1, 3], [1, 1]), ("S", [], [0]), ("", [], [])],
)  # fmt: skip
def test_names_are_what_stands_between_a_start_marker_and_what_ends_it(tokens, values, counts):
    """The n-th token has the log-probability n, and the end of a name there 100 times as much."""
    known = list(tokens), [*range(len(tokens))], "SEBF", "12"
    assert description_fields(*known) == {"desc_logprobs": values, "desc_token_counts": counts}
    ends, left = list(values), [n for n, count in enumerate(counts) if count]
    for n in left:
        last = sum(counts[: n + 1]) - 1
        ends[last] += 100 * (values[last] + 1) * (values[last] + 1 < len(tokens))
    forced = description_fields(*known, log_end=[100 * n for n in range(len(tokens))])
    assert forced == {"desc_logprobs": ends, "desc_token_counts": counts}


@pytest.mark.parametrize(
    ("words", "names", "trained", "only", "expected"),
    [
        ((), NAMES, (), (), ((), ())),
        ((), NAMES, ("cat",), ("cat",), (("cat",), ("cat",))),
        (("evaluation.decoding.grammar=markers",), NAMES, ("bird",), (), ((), ())),
        (("evaluation.decoding.grammar=names",), NAMES, (), (), (NAMES, ())),
        (("evaluation.decoding.grammar=names",), NAMES, ("cat",), (), (NAMES, ())),
        (("evaluation.decoding.grammar=names",), ("cat",), ("cat", "bird"), (), (("cat", "bird"), ("cat",))),
        (("evaluation.decoding.grammar=names",), NAMES, ("bird",), ("cat",), (("cat", "bird"), ("cat",))),
    ],
)
def test_names_of_the_grammar_are_known_ones_and_fewer_are_forced_among_them(words, names, trained, only, expected):
    engine = LocalEngine("m", tiny_checkpoint(), settings()).asked(settings(*words), names, trained, frozenset(only))
    assert (engine.names, engine.only) == tuple(map(frozenset, expected))


def test_limit_of_an_answer_is_the_callers_the_settings_or_room_for_the_longest_name():
    engine = LocalEngine("m", tiny_checkpoint(), settings())
    stated = settings("evaluation.max_new_tokens=9", "data.max_objects=3")
    assert engine.asked(stated, ()).max_new_tokens == 9 and engine.asked(stated, (), limit=5).max_new_tokens == 5
    free = settings("data.max_objects=3")
    assert engine.asked(free, NAMES).max_new_tokens == 3 * (8 + 12) + 16  # names that no grammar holds to limit nothing
    assert engine.asked(free, (), only=NAMES).max_new_tokens == 3 * (8 + len("a dog")) + 16
    assert engine.max_pixels == 64 * 64


@pytest.mark.parametrize(
    ("words", "names", "most", "expected"),
    [
        ((), ("cat",), None, 30 * (8 + 3) + 16),
        ((), ("cat", "hippopotamus"), 2, 2 * (8 + 12) + 16),
        ((), (), None, 30 * (8 + 12) + 16),
        (("data.markers=obj",), ("cat",), 1, 2 + 4 + 3 + 16),
        (("data.geometry=point",), ("cat",), 1, 8 + 3 + 16),
        (("data.geometry=oriented",), ("cat",), 1, 8 + 4 + 3 + 16),
        (("data.geometry=polygon", "data.max_vertices=5"), ("cat",), 1, 8 + 6 + 3 + 16),
        (("custom.coord_tokens.enabled=false", "data.geometry=oriented"), ("cat",), 1, None),
        (("data.style=json",), ("cat",), 1, len('[{"desc": "cat", "bbox": [, , , ]}]') + 4 + 16),
    ],
)
def test_room_for_an_answer_is_that_of_its_tokens(words, names, most, expected):
    """Against the tokens of such an answer, of a tokenizer that has one for each byte."""
    tokenizer, config = tiny_checkpoint().processor.tokenizer, settings(*words)
    if expected is None:  # four tokens of markers, and two points of `(111,222),` beside those of a box
        expected = len(
            tokenizer(config.data.model_copy(update={"geometry": "box"}).target_text(_cat(), False))["input_ids"]
        )
        expected += 2 * len("(111,222),") + 16
    assert token_limit(config, tokenizer, names, most) == expected
    assert token_limit(config, tokenizer.backend_tokenizer, names, most) == expected  # that of a server's folder


def _cat():
    from coord_codec import Instance, Object

    return Instance(image="x", objects=[Object(desc="cat", bbox=(0.111, 0.222, 0.333, 0.444))])


@pytest.mark.parametrize(
    ("words", "each"),
    [((), 12 + 4 + 12), (("data.style=json",), 16 + 16 + 12), (("custom.coord_tokens.enabled=false",), 16 + 16 + 12),
     (("data.geometry=polygon", "data.max_vertices=5"), 12 + 10 + 12)],
)  # fmt: skip
def test_room_without_a_tokenizer_is_more_than_any_needs(words, each):
    assert token_limit_without_tokenizer(settings(*words, "data.max_objects=3")) == 3 * each + 16


def test_each_setting_of_a_call_is_passed_on(monkeypatch, images):
    seen = []
    monkeypatch.setattr(local, "answer_images", lambda *words, **named: seen.append((words, named)) or ["answer"])
    words = ("evaluation.decoding.grammar=names", "evaluation.speed=exact", "evaluation.max_new_tokens=9")
    engine = LocalEngine("m", tiny_checkpoint(), settings()).asked(settings(*words), NAMES, only=frozenset({"cat"}))
    assert engine.answer(images, "Which?", 4.0) == ["answer"]
    ((_, given, data, decoding, limit, names), named) = seen[0]
    assert (given, data, decoding.name, limit, names) == (images, engine.config.data, "names", 9, frozenset({"cat"}))
    assert named == {"only": {"cat"}, "prompt": "Which?", "pixels": 4.0, "speed": "exact"}
    LocalEngine("m", tiny_checkpoint(), settings()).asked(settings(), NAMES).answer(images)
    assert seen[1][0][5] is None and seen[1][1] == {"only": set(), "prompt": None, "pixels": 1.0, "speed": "plain"}

    def full(*_, **__):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(local, "answer_images", full)
    with pytest.raises(MemoryError, match="full"):
        engine.answer(images)


def local_model(*words, **more):
    config = settings(*words, "evaluation.max_new_tokens=9")
    engine = LocalEngine("m", tiny_checkpoint(), config)
    return AnsweringModel(engine, config, **{"names": ("known",)} | more)._with(config, frozenset(more.get("only", ())))


def test_model_in_this_process_is_asked_with_another_prompt_other_names_and_views():
    model = local_model("evaluation.decoding.grammar=names")
    assert model.engine.names == {"known"} and model.forced == ()
    other = model.asking(prompt="Which?", only=["cat"], views=["scale:2"], labels=["cat"])
    assert (other.config.data.prompt, other.config.evaluation.views) == ("Which?", ("scale:2",))
    assert other.engine.config.data.prompt == "Which?" and other.forced == ("cat",) and other.labels == {"cat"}
    assert other.finish.question.prompt == "Which?" and other.finish.question.labels == ("cat",)
    assert other.finish.question.max_pixels == 64 * 64
    again = other.asking()
    assert (again.forced, again.labels, again.config) == (("cat",), {"cat"}, other.config)
    free = other.asking(only=[], views=[])
    assert free.forced == () and free.only == set() and free.engine.names == {"known"}
    with pytest.raises(InputError, match=r"asking: data\.prompt: "):
        model.asking(prompt=" ")
    with pytest.raises(InputError, match="no labels are known"):
        local_model(names=()).asking(views=["classes"])
    for words, told in (
        (["custom.coord_tokens.enabled=false"], "in plain numbers"),
        (["data.style=json"], "answers in JSON"),
    ):
        with pytest.raises(InputError, match=told):
            local_model(*words).asking(only=["cat"])


class _Line:
    """A calibration that is told apart from others by its key."""

    def __init__(self, key):
        self.key = key

    def to_dict(self):
        points = [[0.0, 0.0], [1.0, 0.5]]
        curve = {"scores": [], "precision": [], "recall": [], "classes": {}}
        return {"points": points, "score_source": "constant", "curve": curve, "rests_on": {"key": self.key}}


def test_loaded_model_has_the_names_of_the_call_then_of_its_card_and_the_calibration_of_what_is_asked(
    tmp_path, monkeypatch
):
    """Of its views and of the names that answers are held to, also where a later question has others."""
    (tmp_path / "config.json").write_text("{}")
    card_of(names=("trained", "cat")).write(tmp_path)
    mark_complete(tmp_path)
    asked = {"": ((), ()), "mirror": (("mirror",), ()), "cat": ((), ("cat",)), "both": (("mirror",), ("cat",))}
    keys = {name: calibration_key(Decoding(), *asked[name]) for name in asked}
    for key in list(keys.values())[:3]:
        write_calibration(tmp_path, key, _Line(key))
    monkeypatch.setattr("coord_detect.model.card.ModelCard.calibration_of", _calibration_of)
    monkeypatch.setattr("coord_detect.model.checkpoint.open_checkpoint", lambda *_: tiny_checkpoint())

    def loaded(*words, **more):
        return AnsweringModel.load(tmp_path, settings(*words), **more)

    assert loaded().names == ("trained", "cat") and loaded(names=("dog", "cat")).names == ("dog", "cat")
    model = loaded(labels=("b", "a"), only=("cat",))
    assert (model.labels, model.only, model.forced, model.folder) == ({"a", "b"}, {"cat"}, ("cat",), tmp_path)
    assert (model.engine.name, loaded(calibrated=False).calibration) == (str(tmp_path), None)
    for name, (views, only) in asked.items():
        word = f"evaluation.views=[{','.join(views)}]"
        later = loaded().asking(views=list(views), only=list(only)), loaded(word).asking(only=list(only))
        for found in (loaded(word, only=only), loaded(only=only).asking(views=list(views)), *later):
            assert found.calibration == (None if name == "both" else keys[name])
            assert ("not calibrated" in found.uncalibrated) is (name == "both")
    assert loaded().asking(prompt="Which?", labels=["cat"]).calibration == keys[""]


def _calibration_of(card, decoding, views, folder, only=()):
    found = card.calibrations.get(calibration_key(decoding, views, only))
    return found and found["rests_on"]["key"]
