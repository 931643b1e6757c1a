"""The prompt: how a model is asked, and that training shows it the same tokens.

ms-swift's template writes the prompts that train, the processor's chat template those that ask. A chat template that
adds a system turn, or was edited by hand, would let a model answer another prompt than it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from PIL import Image

from coord_codec import InputError

_ANSWER = "a"
_SHOWN = 12
"""Number of tokens that are shown from the first difference on."""


def prompt_tokens(
    processor: Any, system: str | None, images: Sequence[Image.Image], prompt: str, pixels: float = 1.0
) -> Any:
    """Return the inputs of a batch, one image each, in the chat template's form for answers without thoughts.

    Args:
        processor: of the checkpoint
        system: the system message, None for none
        images: upright and RGB
        prompt: the user's message beside the image
        pixels: factor of the processor's limits on the size of an image

    Raises:
        InputError: the processor has no chat template.
    """
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}]
    if system:
        messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system}]})
    if processor.chat_template is None:
        raise InputError(
            "model.path: the checkpoint has no chat template, so that its answers could not be asked for; copy "
            "chat_template.jinja of an instruction-tuned checkpoint of the same family into its folder"
        )
    # Templates of models that think write an empty thought; the others do not know the setting.
    thinking = {"enable_thinking": False} if "enable_thinking" in str(processor.chat_template) else {}
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **thinking)
    limits = {}
    if pixels != 1:
        limits["size"] = {
            key: max(1, round(side * pixels)) for key, side in dict(processor.image_processor.size).items()
        }
    return processor(
        text=[text] * len(images), images=list(images), padding=True, padding_side="left", return_tensors="pt", **limits
    )


def check_prompt(encode: Callable[..., dict[str, Any]], processor: Any, system: str | None, prompt: str) -> None:
    """Compare the prompts of training and of asking token by token, for one small image.

    Args:
        encode: encodes a conversation as training does
        processor: of the checkpoint
        system: the configured system message, None for none
        prompt: the user's message beside the image

    Raises:
        InputError: they differ; the message shows both from the first difference on.
    """
    image = Image.new("RGB", (64, 64))
    messages = [{"role": "user", "content": f"<image>{prompt}"}, {"role": "assistant", "content": _ANSWER}]
    encoded = encode({"messages": messages, "images": [image]})
    trained, labels = list(encoded["input_ids"]), list(encoded["labels"])
    trained = trained[: next(i for i, label in enumerate(labels) if label != -100)]
    asked = prompt_tokens(processor, system, [image], prompt)["input_ids"][0].tolist()
    if trained == asked:
        return
    place = next(i for i, (one, other) in enumerate(zip_longest(trained, asked)) if one != other)
    shown = [processor.tokenizer.decode(ids[place : place + _SHOWN]) or "the answer" for ids in (trained, asked)]
    raise InputError(
        f"model.path: the checkpoint would be trained with another prompt than its chat template asks with; they "
        f"differ from token {place} on: training has {shown[0]!r}, the chat template has {shown[1]!r}. If it is a "
        "system message that differs, state it as training.system, which both then use; else correct "
        "chat_template.jinja in the checkpoint's folder"
    )
