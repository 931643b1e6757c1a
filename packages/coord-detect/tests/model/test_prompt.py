"""The prompts of training, of this process and of a server are one, however a chat template differs."""

import json

import pytest
from PIL import Image
from tiny_model import tiny_processor

from coord_codec import InputError
from coord_detect.model.prompt import (
    check_prompt,
    end_answers_as_asked,
    prompt_settings,
    prompt_text,
    prompt_tokens,
    read_chat_template,
)

PROMPT = "find all"
END = "<|im_start|>assistant\n"
EMPTY = "<think>\n\n</think>\n\n"
THINKS = "{% if enable_thinking is defined and not enable_thinking %}" + EMPTY + "{% else %}<think>\n{% endif %}"
NUMBERED = "{% if add_vision_id is defined and add_vision_id %}Picture 1: {% endif %}<|vision_start|>"


@pytest.fixture(scope="module")
def plain():
    return tiny_processor()


@pytest.fixture
def processor(plain, monkeypatch):
    """A function that sets the chat template of the processor, and of its tokenizer."""

    def of(change=lambda template: template, tokenizer=None):
        monkeypatch.setattr(plain, "chat_template", change(plain.chat_template))
        monkeypatch.setattr(plain.tokenizer, "chat_template", tokenizer)
        return plain

    return of


def trained_with(processor, text, end=None):
    """An encoder of conversations that shows this prompt in training, with four tokens for the image."""

    def encode(_):
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        image = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        ids = [token for one in ids for token in [one] * (4 if one == image else 1)]
        answer = [5, end or processor.tokenizer.eos_token_id]
        return {"input_ids": [*ids, *answer], "labels": [*[-100] * len(ids), *answer]}

    return encode


def trained_prompt(system="", thought=""):
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    return f"{system}<|im_start|>user\n{image}{PROMPT}<|im_end|>\n{END}{thought}"


def check(processor, text=None, system=None):
    return check_prompt(trained_with(processor, text or trained_prompt()), processor, system, PROMPT)


def test_prompt_that_a_server_builds_by_itself_needs_nothing(processor):
    assert check(processor()) is None
    assert check(processor(lambda t: t.replace("<|vision_start|>", NUMBERED))) is None


def test_thinking_prompt_of_a_server_is_told_with_the_request_that_avoids_it(processor):
    thinking = processor(lambda template: template.replace(END, END + THINKS))
    note = check(thinking, trained_prompt(thought=EMPTY))
    assert 'chat_template_kwargs={"enable_thinking": false}' in note
    assert repr(EMPTY[len("<think>\n") :]) in note
    with pytest.raises(InputError, match="another prompt than its chat template asks with"):
        check(thinking, trained_prompt(thought="<think>\n"))


def test_model_that_does_not_think_by_default_needs_nothing(processor):
    settled = THINKS.replace("is defined and not enable_thinking", "is not defined or not enable_thinking")
    assert check(processor(lambda t: t.replace(END, END + settled)), trained_prompt(thought=EMPTY)) is None


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (lambda t: "{% set add_vision_id = true %}" + t.replace("<|vision_start|>", NUMBERED), "Picture 1"),
        (lambda t: "<|im_start|>system\nYou help.<|im_end|>\n" + t, "system"),
        (lambda t: t.replace(END, END + "<think>\n"), "<think>"),
    ],
    ids=["add_vision_id", "system turn", "thought that cannot be turned off"],
)
def test_chat_template_edited_by_hand_is_refused_with_the_difference(processor, change, shown):
    with pytest.raises(InputError, match="another prompt than its chat template asks with") as refused:
        check(processor(change))
    assert shown in str(refused.value)


def test_template_of_the_tokenizer_that_differs_is_refused(processor, plain):
    template = plain.chat_template
    assert check(processor(tokenizer=template)) is None
    with pytest.raises(InputError, match=r"a server that uses the tokenizer's template .*tokenizer_config.json"):
        check(processor(tokenizer="<|im_start|>system\nHi<|im_end|>\n" + template))


def test_system_message_that_a_template_takes_only_in_parts_is_refused(processor):
    system = "<|im_start|>system\nbe brief<|im_end|>\n"
    assert check(processor(), trained_prompt(system), "be brief") is None
    parts_only = processor(lambda t: t.replace("{{ message.content }}", ""))
    with pytest.raises(InputError, match="another prompt than a server asks with"):
        check(parts_only, trained_prompt(system), "be brief")


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
def test_chat_template_is_read_from_every_file_that_may_hold_it(tmp_path, name):
    assert read_chat_template(tmp_path) == ""
    (tmp_path / name).write_text("as it is" if name.endswith("jinja") else json.dumps({"chat_template": "as it is"}))
    assert read_chat_template(tmp_path) == "as it is"


def test_chat_template_of_a_file_of_its_own_counts_first(tmp_path):
    for name in ("tokenizer_config.json", "chat_template.json", "chat_template.jinja"):
        (tmp_path / name).write_text(name if name.endswith("jinja") else json.dumps({"chat_template": name}))
        assert read_chat_template(tmp_path) == name
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.json").write_text("{}")
    assert read_chat_template(tmp_path) == "tokenizer_config.json"


def test_thoughts_are_turned_off_where_a_template_knows_the_setting():
    assert prompt_settings(THINKS) == {"enable_thinking": False}
    assert prompt_settings("{{ messages }}") == prompt_settings(None) == {}


def test_prompts_of_a_batch_are_padded_on_the_left_and_begin_once():
    own = tiny_processor()
    images = [Image.new("RGB", size) for size in ((64, 64), (32, 32))]
    inputs = prompt_tokens(own, None, images, PROMPT)
    assert inputs["attention_mask"][0].all() and not inputs["attention_mask"][1][0]
    alone = prompt_tokens(own, None, images[1:], PROMPT)["input_ids"][0].tolist()
    assert inputs["input_ids"][1].tolist()[-len(alone) :] == alone
    patches = [int(prompt_tokens(own, None, images[:1], PROMPT, f)["image_grid_thw"].prod()) for f in (1.0, 0.25)]
    assert patches == [16, 4]
    own.tokenizer.bos_token = "<|im_start|>"
    assert prompt_tokens(own, None, images[1:], PROMPT)["input_ids"][0].tolist() == alone


@pytest.mark.parametrize(
    ("change", "stated", "end"),
    [
        (("", ""), "", "<|im_end|>"),
        (("<|im_end|>\n{% endfor %}", "<|endoftext|>\n{% endfor %}"), "", "<|endoftext|>"),
        (("<|im_end|>\n{% endfor %}", "\n{% endfor %}"), "<|endoftext|>", "<|endoftext|>"),
        (("<|im_end|>\n{% endfor %}", "\n{% endfor %}"), "", "<|im_end|>"),
        (("<|im_end|>\n{% endfor %}", "words{% endfor %}"), "<|endoftext|>", "<|im_end|>"),
    ],
)
def test_answers_end_with_the_token_that_the_chat_template_writes(change, stated, end):
    own = tiny_processor()
    own.chat_template = own.chat_template.replace(*change) if change[0] else own.chat_template
    end_answers_as_asked(own, stated)
    assert own.tokenizer.eos_token == end


def test_training_that_would_end_answers_otherwise_and_a_model_without_a_template_are_refused(processor):
    own = processor()
    other = own.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    with pytest.raises(
        InputError, match=r"end an answer with .*endoftext.*, but answers are generated until '<.im_end.>'"
    ):
        check_prompt(trained_with(own, trained_prompt(), other), own, None, PROMPT)
    with pytest.raises(InputError, match="the checkpoint has no chat template"):
        prompt_text(processor(lambda t: None), None, PROMPT)


def test_prompt_has_one_placeholder_an_image(processor):
    assert prompt_text(processor(), "be brief", PROMPT).count("<|image_pad|>") == 1


@pytest.mark.parametrize("where", ["system", "prompt"])
def test_placeholder_of_any_model_is_refused_where_a_user_writes_it(processor, monkeypatch, where):
    """transformers would look for the pixels of a second image, and end in a bare StopIteration."""
    asked = {"system": "be brief", "prompt": PROMPT}
    own = processor()
    monkeypatch.setattr(own, "image_token", "[PIXELS]")  # a plug-in's, which no list of ours has
    assert prompt_text(own, **asked)
    with pytest.raises(InputError, match=rf"{where}: .*found \[PIXELS\].*remove it"):
        prompt_text(own, **asked | {where: "count [PIXELS]"})
