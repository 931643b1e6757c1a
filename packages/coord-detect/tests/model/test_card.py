"""The card of a checkpoint: what it fills in, what contradicts it, and what is checked against it."""

import json

import pytest
from fakes import card_of

from coord_codec import InputError
from coord_detect.model import card as cards
from coord_detect.model.card import CARD_FILE, calibration_key, follow_card, memorised_note, read_card, system_text
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.load import load_settings
from coord_detect.settings.record import Settings

TRAINED = {
    "prompt": "Where?",
    "markers": "obj",
    "order": "size",
    "geometry": "box",
    "max_vertices": 9,
    "max_objects": 7,
}
LIMITS = {"pixels": {"min": 1024, "max": 9216}}


def settings(*words):
    return load_settings(Settings, None, words)[0]


def trained(**more):
    return cards.ModelCard.model_validate(
        {"style": "markers", "form": "tokens", "decoding": "markers", "grid": {"bins": 1000, "scale": 1000}}
        | TRAINED | LIMITS | more
    )  # fmt: skip


def test_every_setting_that_is_not_set_is_the_cards_and_what_is_set_stays(tmp_path):
    found = follow_card(settings("evaluation.limit=3"), trained(), tmp_path)
    assert {name: getattr(found.data, name) for name in TRAINED} == TRAINED
    assert (found.data.min_pixels, found.data.max_pixels, found.data.style) == (1024, 9216, "markers")
    assert (found.evaluation.limit, found.evaluation.decoding) == (3, (Decoding(grammar="markers"),))
    kept = follow_card(settings("evaluation.decoding.boxes=median"), trained(), tmp_path)
    assert kept.evaluation.decoding == (Decoding(boxes="median"),)
    numbers = trained(form="numbers", decoding="none")
    assert follow_card(settings(), numbers, tmp_path).custom.coord_tokens.enabled is False
    with pytest.raises(InputError, match="decoding: expected a decoding, found 'names-filled'"):
        follow_card(settings(), trained(decoding="names-filled"), tmp_path)
    with pytest.raises(InputError, match=f"the configuration with {tmp_path / CARD_FILE}: "):
        follow_card(settings("evaluation.speed=exact"), numbers, tmp_path)


@pytest.mark.parametrize(
    ("word", "same", "other", "told"),
    [
        ("data.prompt", "Where?", "What?", "data.prompt is 'What?' and the checkpoint's prompt is 'Where?'"),
        ("data.markers", "obj", "qwen", "data.markers is 'qwen'"),
        ("data.style", "markers", "json", "data.style is 'json' and the checkpoint's style is 'markers'"),
        ("data.order", "size", "given", "data.order is 'given'"),
        ("data.geometry", "box", "point", "data.geometry is 'point'"),
        ("data.max_vertices", "9", "8", "data.max_vertices is 8"),
        ("data.max_objects", "7", "8", "data.max_objects is 8 and the checkpoint's max_objects is 7"),
        ("data.min_pixels", "1024", "1025", "data.min_pixels is 1025 and the checkpoint's pixels.min is 1024"),
        ("data.max_pixels", "9216", "9217", "data.max_pixels is 9217 and the checkpoint's pixels.max is 9216"),
        ("training.system", "You see.", "You.", "training.system is 'You.' and the checkpoint's system is 'You see.'"),
        (
            "custom.coord_tokens.enabled",
            "true",
            "false",
            "custom.coord_tokens.enabled is False and the checkpoint's form",
        ),
    ],
)
def test_setting_that_contradicts_the_card_is_named_with_both_values(tmp_path, word, same, other, told):
    card = trained(system="You see.")
    follow_card(settings(f"{word}={same}"), card, tmp_path)
    with pytest.raises(InputError) as caught:
        follow_card(settings(f"{word}={other}"), card, tmp_path)
    assert str(caught.value).startswith(f"the configuration disagrees with {tmp_path / CARD_FILE}: {told}")
    if word != "data.order":
        with pytest.raises(
            InputError, match=r"data\.order is 'given'.*; .*" if word == "data.prompt" else "data.order"
        ):
            follow_card(settings("data.order=given", f"{word}={other}"), card, tmp_path)


def test_answers_in_json_have_no_markers_to_contradict(tmp_path):
    card = trained(style="json")
    assert follow_card(settings("data.markers=qwen"), card, tmp_path).data.style == "json"
    with pytest.raises(InputError, match=r"data\.markers is 'qwen'"):
        follow_card(settings("data.markers=qwen"), trained(), tmp_path)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", None), (None, None), ("a\\nb", "a\nb"), ("plain", "plain"), ("{folder}/s.txt", "of a file\n"),
     ("{folder}/empty.txt", None)],
)  # fmt: skip
def test_system_message_is_text_or_a_file_of_it(tmp_path, given, expected):
    (tmp_path / "s.txt").write_text("of a file\n")
    (tmp_path / "empty.txt").write_text("")
    value = given and given.replace("{folder}", str(tmp_path))
    assert system_text(Settings(training={"system": value})) == expected
    assert system_text(Settings()) is None
    with pytest.raises(InputError, match=r"training\.system: expected text or the name of a \.txt file, found 3"):
        system_text(Settings(training={"system": 3}))


def test_card_says_what_is_wrong_with_it(tmp_path):
    assert read_card(tmp_path) is None
    plain = json.loads(card_of().model_dump_json())
    for values, told in (
        (
            {"format": 2, "versions": {"coord-trainer": "9", "torch": "3"}},
            r"expected 1, .*found 2 .*\(coord-trainer 9\)",
        ),
        ({"format": 2}, "found 2 of another version; install"),
        ({"max_objects": "many"}, "max_objects: input should be .*found 'many'"),
        ({"pixels": {"min": "x"}}, r"pixels\.min: "),
        ({"grid": {"bins": 999, "scale": 1000}}, "999 bins of 1/1000, this version 1000 of 1/1000"),
        ({"grid": {"bins": 1000, "scale": 999}}, "1000 bins of 1/999"),
    ):
        (tmp_path / CARD_FILE).write_text(json.dumps(plain | values))
        with pytest.raises(InputError, match=told):
            read_card(tmp_path)
    (tmp_path / CARD_FILE).write_text(json.dumps(plain | {"of_later": 1}))
    assert read_card(tmp_path) == card_of()
    card_of(names=("ü",)).write(tmp_path)
    assert read_card(tmp_path).names == ("ü",)


def test_rendered_prompt_fingerprint_and_base_are_checked_where_they_are_stated(tmp_path):
    card = trained(rendered_prompt="<user>Where?", fingerprint="f", base="b")
    silent = trained()
    for found in (None, "other"):
        silent.check_fingerprint(found, tmp_path)
        with pytest.raises(InputError, match=f"has the fingerprint {found}, the checkpoint's .* names f: "):
            card.check_fingerprint(found, tmp_path)
    card.check_fingerprint("f", tmp_path)
    silent.check_rendered_prompt("anything", tmp_path)
    card.check_rendered_prompt("<user>Where?", tmp_path)
    for found, told in (("<user>What?", r"character 8 on: it has 'at\?', .* has 'ere\?'"),
                        ("<user>Where?!", "'!', .*'nothing'"),
                        ("<user>", "character 6 on: it has 'nothing'")):  # fmt: skip
        with pytest.raises(InputError, match=told):
            card.check_rendered_prompt(found, tmp_path)
    silent.check_base(tmp_path)


@pytest.mark.parametrize(
    ("versions", "processor", "told"),
    [
        ({}, None, None),
        ({"pillow": "now"}, "Fast", None),
        ({"pillow": "9"}, None, "pillow 9 (now now)"),
        (
            {"torchvision": "1", "pillow": "9"},
            "Slow",
            "image processor Slow (now Fast), pillow 9 (now now), torchvision 1",
        ),
        ({"transformers": "4"}, "Fast", "transformers 4 (now now)"),
        ({"torch": "1", "numpy": "1"}, "Fast", None),
        ({"gone": "1"}, "Fast", None),
    ],
)
def test_software_that_makes_other_pixels_is_told(monkeypatch, versions, processor, told):
    monkeypatch.setattr(cards, "installed_version", lambda name: "now")
    found = trained(versions=versions, image_processor=processor).other_pixels("Fast")
    assert (found is None) == (told is None) and (told or "") in (found or "")
    assert cards.OF_PIXELS == ("transformers", "pillow", "torchvision")
    monkeypatch.setattr(cards, "installed_version", lambda name: None)  # not installed here
    assert trained(versions={"torchvision": "1"}).other_pixels("Fast") is None


def test_software_of_training_is_told_in_words():
    assert trained().made_pixels == ""
    made = trained(versions={"torchvision": "3", "torch": "1", "transformers": "5"}, image_processor="Fast").made_pixels
    assert made == "transformers 5, torchvision 3, image processor Fast"


@pytest.mark.parametrize(("scored", "told"), [("train", True), ("heldout", False), ("none", False), (None, False)])
def test_model_that_was_scored_on_its_training_images_alone_may_have_memorised_them(tmp_path, scored, told):
    card_of(scored=scored).write(tmp_path)
    assert bool(memorised_note(tmp_path)) is told and memorised_note(None) == memorised_note(tmp_path / "none") == []


def test_key_of_a_calibration_has_boxes_views_and_names_in_any_order():
    key = calibration_key(Decoding(grammar="markers", boxes="median"), ["tiles:auto", "mirror"], ["dog", "a cat"])
    assert key == "median mirror tiles:auto only=a cat only=dog"
    assert calibration_key(Decoding(), []) == "tokens"
