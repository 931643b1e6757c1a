"""The prompts of training, of this process and of a server are one, however a chat template differs."""

import json

import pytest

from coord_codec import InputError
from coord_detect.model.prompt import check_prompt, prompt_text, read_chat_template
from coord_trainer.config.sections import TinyModelConfig
from coord_trainer.model.tiny import build_processor, train_tokenizer

PROMPT = "find all"
END = "<|im_start|>assistant\n"
EMPTY = "<think>\n\n</think>\n\n"
THINKS = "{% if enable_thinking is defined and not enable_thinking %}" + EMPTY + "{% else %}<think>\n{% endif %}"
NUMBERED = "{% if add_vision_id is defined and add_vision_id %}Picture 1: {% endif %}<|vision_start|>"


@pytest.fixture(scope="module")
def plain():
    return build_processor(train_tokenizer([PROMPT, "be brief"]), TinyModelConfig())


@pytest.fixture
def processor(plain, monkeypatch):
    """A function that sets the chat template of the processor, and of its tokenizer."""

    def of(change=lambda template: template, tokenizer=None):
        monkeypatch.setattr(plain, "chat_template", change(plain.chat_template))
        monkeypatch.setattr(plain.tokenizer, "chat_template", tokenizer)
        return plain

    return of


def trained_with(processor, text):
    """An encoder of conversations that shows this prompt in training, with four tokens for the image."""

    def encode(_):
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        image = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        ids = [token for one in ids for token in [one] * (4 if one == image else 1)]
        answer = [5, processor.tokenizer.eos_token_id]
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
        (lambda t: "<|im_start|>system\nYou help.<|im_end|>\n" + t, "You help."),
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
