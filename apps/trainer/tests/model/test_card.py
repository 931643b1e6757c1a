"""How a checkpoint wants to be asked: the card, and a configuration that follows or contradicts it."""

import json
import re

import pytest

from coord_codec import CoordVocab, InputError
from coord_detect.model.card import CARD_FILE, follow_card, read_card, system_text
from coord_detect.settings.decoding import Decoding
from coord_trainer.config.run_config import check_run_config
from coord_trainer.model.card import make_card

SOFT = {"coord_soft_ce_w1": {"enabled": True}}
SIZES = {"shortest_edge": 1024, "longest_edge": 9216}
FINGERPRINT = CoordVocab(270).fingerprint(markers=(1, 2))


def trained(**sections):
    """The configuration of a training; its card has nothing of the defaults."""
    data = {"prompt": "Where?", "markers": "obj", "order": "size", "max_objects": 7}
    values = {"custom": SOFT, "data": data, "training": {"system": "You see."}}
    return check_run_config(values | {"evaluation": {"decoding": [{"grammar": "markers"}, {}]}} | sections, "test")


def asked(**sections):
    """The configuration of somebody who asks."""
    return check_run_config(sections, "test", trains=False)


@pytest.fixture
def folder(tmp_path):
    make_card(trained(), SIZES, FINGERPRINT).write(tmp_path)
    return tmp_path


def test_card_of_a_run_is_read_as_it_was_written(folder):
    content = json.loads((folder / CARD_FILE).read_text())
    versions = content.pop("versions")
    assert {"coord-trainer", "coord-codec", "transformers"} <= versions.keys()
    assert content == {
        "format": 1,
        "prompt": "Where?",
        "system": "You see.",
        "rendered_prompt": None,
        "chat_template_kwargs": {},
        "markers": "obj",
        "style": "markers",
        "form": "tokens",
        "order": "size",
        "geometry": "box",
        "max_vertices": 32,
        "max_objects": 7,
        "pixels": {"min": 1024, "max": 9216},
        "decoding": "markers",
        "grid": {"bins": 1000, "scale": 1000},
        "fingerprint": FINGERPRINT,
        "base": None,
        "scored": "heldout",
        "names": [],
        "image_processor": None,
        "calibrations": {},
    }
    assert read_card(folder) == make_card(trained(), SIZES, FINGERPRINT)
    assert [path.name for path in folder.iterdir()] == [CARD_FILE]


def test_settings_that_were_not_given_come_from_the_card(folder):
    config = follow_card(asked(), read_card(folder), folder)
    data = config.data
    assert (data.prompt, data.markers, data.style, data.order) == ("Where?", "obj", "markers", "size")
    assert data.max_objects == 7
    assert (data.min_pixels, data.max_pixels) == (1024, 9216)
    assert config.custom.coord_tokens.enabled
    assert config.evaluation.decoding == (Decoding(grammar="markers"),)
    kept = follow_card(asked(evaluation={"decoding": {}, "limit": 3}), read_card(folder), folder)
    assert (kept.evaluation.decoding, kept.evaluation.limit) == ((Decoding(),), 3)


def test_prompt_that_the_chat_template_renders_otherwise_is_refused(tmp_path):
    card = make_card(trained(), SIZES, FINGERPRINT, "<user>Where?<answer>", {"enable_thinking": False})
    card.write(tmp_path)
    card = read_card(tmp_path)
    assert card.chat_template_kwargs == {"enable_thinking": False}
    card.check_rendered_prompt("<user>Where?<answer>", tmp_path)
    with pytest.raises(InputError, match=r"from character 1 on: it has 'system>Hi.*has 'user>Where.*chat_template"):
        card.check_rendered_prompt("<system>Hi<user>Where?<answer>", tmp_path)
    with pytest.raises(InputError, match=r"from character 20 on: it has '<think>', .*has 'nothing'"):
        card.check_rendered_prompt("<user>Where?<answer><think>", tmp_path)
    make_card(trained(), SIZES, FINGERPRINT).write(tmp_path)
    read_card(tmp_path).check_rendered_prompt("anything", tmp_path)


@pytest.mark.parametrize(
    ("written", "decoding"),
    [("markers", Decoding(grammar="markers")), ("names-filled", None), ("none-best_iou", Decoding(boxes="best_iou"))],
)
def test_decoding_of_a_card_is_understood(folder, written, decoding):
    values = json.loads((folder / CARD_FILE).read_text()) | {"decoding": written}
    (folder / CARD_FILE).write_text(json.dumps(values))
    if decoding is None:
        with pytest.raises(InputError, match="decoding: expected a decoding"):
            follow_card(asked(), read_card(folder), folder)
        return
    assert follow_card(asked(), read_card(folder), folder).evaluation.decoding == (decoding,)


def test_card_of_plain_numbers_asks_for_plain_numbers(tmp_path):
    plain = trained(custom={"coord_tokens": {"enabled": False}}, evaluation={})
    make_card(plain, SIZES, FINGERPRINT).write(tmp_path)
    card = read_card(tmp_path)
    assert (card.form, card.fingerprint) == ("numbers", None)
    assert not follow_card(asked(), card, tmp_path).custom.coord_tokens.enabled
    with pytest.raises(InputError, match=r"coord_tokens\.enabled is True and the checkpoint's form is 'numbers"):
        follow_card(asked(custom=SOFT), card, tmp_path)


def test_the_configuration_of_the_run_itself_agrees(folder):
    whole = check_run_config(trained().model_dump(mode="json"), "config.yaml")
    assert follow_card(whole, read_card(folder), folder).data.max_pixels == 9216


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"data": {"markers": "qwen"}}, "data.markers is 'qwen' and the checkpoint's markers is 'obj'"),
        ({"data": {"prompt": "Where?\nNow"}}, r"data.prompt is 'Where?\nNow' and the checkpoint's prompt is 'Where?'"),
        ({"training": {"system": "Be."}}, "training.system is 'Be.' and the checkpoint's system is 'You see.'"),
        ({"training": {"system": ""}}, "training.system is None and the checkpoint's system is 'You see.'"),
        ({"data": {"style": "json"}}, "data.style is 'json' and the checkpoint's style is 'markers'"),
        ({"data": {"order": "given"}}, "data.order is 'given' and the checkpoint's order is 'size'"),
        ({"data": {"min_pixels": 1}}, "data.min_pixels is 1 and the checkpoint's pixels.min is 1024"),
        ({"data": {"max_pixels": 99}}, "data.max_pixels is 99 and the checkpoint's pixels.max is 9216"),
        (
            {"custom": {"coord_tokens": {"enabled": False}}},
            "custom.coord_tokens.enabled is False and the checkpoint's form is 'tokens'",
        ),
    ],
    ids=str,
)
def test_a_setting_that_disagrees_is_told_with_both_sides_in_one_line(folder, sections, told):
    with pytest.raises(InputError) as caught:
        follow_card(asked(**sections), read_card(folder), folder)
    message = str(caught.value)
    assert told in message and str(folder / CARD_FILE) in message
    assert "\n" not in message


def test_every_disagreement_is_named(folder):
    with pytest.raises(InputError, match=r"data\.prompt is .*; data\.markers is "):
        follow_card(asked(data={"markers": "qwen", "prompt": "What?"}), read_card(folder), folder)


def test_decoding_that_does_not_fit_the_card_is_told(tmp_path):
    make_card(trained(data={"style": "json"}, evaluation={}), SIZES, FINGERPRINT).write(tmp_path)
    grammar = follow_card(asked(evaluation={"decoding": {"grammar": "markers"}}), read_card(tmp_path), tmp_path)
    assert (grammar.data.style, grammar.evaluation.decoding) == ("json", (Decoding(grammar="markers"),))
    # JSON has no markers: which ones the configuration names says nothing.
    assert follow_card(asked(data={"markers": "obj"}), read_card(tmp_path), tmp_path).data.style == "json"


@pytest.mark.parametrize("found", [None, CoordVocab(271).fingerprint(markers=(1, 2))])
def test_another_tokenizer_is_told(folder, found):
    card = read_card(folder)
    card.check_fingerprint(FINGERPRINT, folder)
    with pytest.raises(InputError, match=f"fingerprint {found}.*{FINGERPRINT}"):
        card.check_fingerprint(found, folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 2, "versions": {"coord-detect": "9.1"}}, "found 2 of another version (coord-detect 9.1)"),
        ({"prompt": None}, "prompt: input should be a valid string"),
        ({"style": "prose"}, "style: "),
        ({"grid": {"bins": 1000, "scale": 999}}, "1000 bins of 1/999"),
        ("[1]", "content: "),
        ("{", "not JSON"),
    ],
    ids=str,
)
def test_a_damaged_card_is_one_line(folder, change, told):
    path = folder / CARD_FILE
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError) as caught:
        read_card(folder)
    assert told in str(caught.value) and CARD_FILE in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_made_elsewhere_has_no_card(tmp_path):
    assert read_card(tmp_path) is None


def test_system_message_is_read_as_ms_swift_reads_it(tmp_path):
    file = tmp_path / "system.txt"
    file.write_text("From a\\n file.\n")
    texts = {None: None, "": None, "You\\nsee.": "You\nsee.", str(file): "From a\\n file.\n"}
    for given, text in texts.items():
        assert system_text(asked(training={"system": given})) == text
    with pytest.raises(InputError, match="nowhere"):
        system_text(asked(training={"system": "nowhere.txt"}))


def test_other_software_for_pixels_is_told_and_the_same_is_not():
    card = make_card(trained(), SIZES, FINGERPRINT).model_copy(update={"image_processor": "Fast"})
    assert card.other_pixels("Fast") is None
    older = card.model_copy(update={"versions": card.versions | {"pillow": "9.0.0", "peft": "0.1"}})
    assert re.search(r"trained with pillow 9\.0\.0 \(now ", older.other_pixels("Fast"))
    assert "peft" not in older.other_pixels("Fast")
    assert "image processor Fast (now Slow)" in card.other_pixels("Slow")
    assert card.model_copy(update={"image_processor": None, "versions": {}}).other_pixels("Slow") is None
