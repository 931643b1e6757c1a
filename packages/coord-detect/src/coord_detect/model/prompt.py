"""The prompt: how a model is asked, and that training shows it the same tokens.

ms-swift's template writes the prompts that train, the processor's chat template those that ask, in this process and
behind a server. A chat template that adds a system turn, or was edited by hand, would let a model answer another prompt
than it was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from PIL import Image

from coord_codec import InputError
from coord_codec.files import read_json, read_text

_ANSWER = "a"
_PLACEHOLDERS = ("image_token", "video_token", "audio_token", "boi_token")
"""The names under which processors of transformers keep the tokens that they replace by images and other media."""
_SHOWN = 12
"""Number of tokens that are shown from the first difference on."""


def prompt_settings(chat_template: Any) -> dict[str, Any]:
    """Return the settings with which a chat template asks for an answer without thoughts.

    Templates of models that think write an empty thought; the others do not know the setting. A server takes the
    settings as `chat_template_kwargs` of a request; without them its model would begin to think.

    Example:
        >>> prompt_settings("{% if enable_thinking is false %}<think></think>{% endif %}")
        {'enable_thinking': False}
    """
    return {"enable_thinking": False} if "enable_thinking" in str(chat_template) else {}


def read_chat_template(folder: Path) -> str:
    """Return the chat template in the folder of a checkpoint, without its tokenizer; empty if there is none."""
    if (path := folder / "chat_template.jinja").is_file():
        return read_text(path)
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (path := folder / name).is_file() and (template := read_json(path).get("chat_template")):
            return str(template)
    return ""


def prompt_text(
    processor: Any,
    system: str | None,
    prompt: str,
    *,
    settings: Mapping[str, Any] | None = None,
    as_request: bool = False,
) -> str:
    """Return the prompt of one image as text, with one placeholder for the image.

    Settings of the chat template are by default those of answers without thoughts. `as_request` states the
    system message as text, as requests to a server do, not as a list of parts.

    Raises:
        InputError: there is no chat template, or a text contains the model's placeholder of an image.
    """
    refuse_placeholders(processor, prompt, "data.prompt")
    refuse_placeholders(processor, system or "", "training.system")
    asked = [{"type": "image"}, {"type": "text", "text": prompt}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    if system:
        content = system if as_request else [{"type": "text", "text": system}]
        messages.insert(0, {"role": "system", "content": content})
    if processor.chat_template is None:
        raise InputError(
            "model.path: the checkpoint has no chat template, so that its answers could not be asked for; copy "
            "chat_template.jinja of an instruction-tuned checkpoint of the same family into its folder"
        )
    settings = prompt_settings(processor.chat_template) if settings is None else settings
    text: str = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **settings)
    return text


def refuse_placeholders(processor: Any, text: str, where: str) -> None:
    """Refuse a text that the model would read as a further image, for which transformers would find no pixels.

    The model may be of a family that is added by a plug-in; `where` is the setting or record that states the
    text.

    Raises:
        InputError: the text contains a placeholder of the processor.
    """
    for name in _PLACEHOLDERS:
        token = getattr(processor, name, None)
        if isinstance(token, str) and token in text:
            raise InputError(f"{where}: expected plain words, found {token}, this model's placeholder: remove it")


def prompt_tokens(
    processor: Any, system: str | None, images: Sequence[Image.Image], prompt: str, pixels: float = 1.0
) -> Any:
    """Return the inputs of a batch, one upright RGB image each, as the chat template asks without thoughts.

    `pixels` is a factor of the processor's limits on the size of an image.

    Raises:
        InputError: the processor has no chat template.
    """
    text = prompt_text(processor, system, prompt)
    settings: dict[str, Any] = {}
    if pixels != 1:
        size = dict(processor.image_processor.size)
        settings["size"] = {key: max(1, round(side * pixels)) for key, side in size.items()}
    if (begin := processor.tokenizer.bos_token) and text.startswith(begin):
        settings["add_special_tokens"] = False  # the tokenizer would write the begin of the text a second time
    one_each = [[image] for image in images]  # a flat list would be the images of one prompt for some processors
    return processor(
        text=[text] * len(images), images=one_each, padding=True, padding_side="left", return_tensors="pt", **settings
    )


def end_answers_as_asked(processor: Any, answer_end: str) -> None:
    """Make the token that the chat template writes after an answer the tokenizer's end, in memory.

    Answers are generated until the tokenizer's end. Qwen's is the end of a turn; that of Gemma is the end of
    a text, which the model would not generate after an answer. `answer_end`, if not empty, is for a chat
    template that writes nothing or blanks there.
    """
    tokenizer, answer = processor.tokenizer, "0123456789"
    turns = (("user", "?"), ("assistant", answer))
    messages = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in turns]
    text = processor.apply_chat_template(messages, tokenize=False)
    after = tokenizer(text.rpartition(answer)[2].strip() or answer_end, add_special_tokens=False)["input_ids"]
    if after and after[0] in tokenizer.added_tokens_decoder:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(after[0])


def check_prompt(encode: Callable[..., dict[str, Any]], processor: Any, system: str | None, prompt: str) -> str | None:
    """Compare the prompts of training, of asking and of a server token by token, for one small image.

    Returns what a request to a server has to state for the same prompt; None if it has to state nothing.

    Raises:
        InputError: they differ; the message shows both from the first difference on.
    """
    # This process: the ids up to the answer.
    image = Image.new("RGB", (64, 64))
    messages = [{"role": "user", "content": f"<image>{prompt}"}, {"role": "assistant", "content": _ANSWER}]
    encoded = encode({"messages": messages, "images": [image]})
    trained, labels = list(encoded["input_ids"]), list(encoded["labels"])
    trained = trained[: next(i for i, label in enumerate(labels) if label != -100)]
    if processor.tokenizer.eos_token_id not in labels:
        learnt = processor.tokenizer.decode([label for label in labels if label != -100]).removeprefix(_ANSWER)
        raise InputError(
            f"model.path: training would end an answer with {learnt!r}, but answers are generated until "
            f"{processor.tokenizer.eos_token!r}, as the chat template ends them; correct the chat template in the "
            "checkpoint's folder"
        )
    asked = prompt_tokens(processor, system, [image], prompt)["input_ids"][0].tolist()
    if trained != asked:
        raise _difference(
            "its chat template", trained, asked, processor.tokenizer, "the chat template in the checkpoint's folder"
        )

    # A server: it may use the tokenizer's chat template, and takes the system message as text.
    text = prompt_text(processor, system, prompt)
    for owner, name in ((processor, "a server"), (processor.tokenizer, "a server that uses the tokenizer's template")):
        if owner.chat_template is None:
            continue
        settings = prompt_settings(processor.chat_template)
        served = prompt_text(owner, system, prompt, settings=settings, as_request=True)
        if served != text:
            ours, theirs = (processor.tokenizer(one, add_special_tokens=False)["input_ids"] for one in (text, served))
            raise _difference(name, ours, theirs, processor.tokenizer, "chat_template in tokenizer_config.json")
    if (unset := prompt_text(processor, system, prompt, settings={})) == text:
        return None
    place = next(i for i, (one, other) in enumerate(zip_longest(text, unset)) if one != other)
    return (
        f"prompt: it ends with {text[place:]!r}, for answers without thoughts; a request to a server has to state "
        f"chat_template_kwargs={json.dumps(settings)}, as predict --endpoint does, since the prompt would end with "
        f"{unset[place:]!r} without it"
    )


def _difference(name: str, trained: list[int], asked: list[int], tokenizer: Any, place_to_correct: str) -> InputError:
    place = next(i for i, (one, other) in enumerate(zip_longest(trained, asked)) if one != other)
    shown = [tokenizer.decode(ids[place : place + _SHOWN]) or "the answer" for ids in (trained, asked)]
    return InputError(
        f"model.path: the checkpoint would be trained with another prompt than {name} asks with; they "
        f"differ from token {place} on: training has {shown[0]!r}, {name} has {shown[1]!r}. If it is a "
        "system message that differs, state it as training.system, which both then use; else correct "
        f"{place_to_correct}"
    )
