"""Passes of batches after one another, each against one pass of the model over whole rows without padding."""

from random import Random

import pytest
import torch
from PIL import Image
from tiny_model import tiny_checkpoint

from coord_detect.answers.generate import prompt_inputs
from coord_detect.speed import cache, passes
from coord_detect.speed.passes import Passes

BATCHES = ((20, 3), (4, 6), (1, 5, 4), (6, 1))
"""Numbers of words behind each image: padding of one batch lies where the next has answers, and buffers are small."""


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_batch_sees_nothing_of_the_one_before(monkeypatch, fixed_shapes):
    monkeypatch.setattr(passes, "_ROUNDED", 1)  # the last position of a buffer is used
    monkeypatch.setattr(cache, "_GROWTH", 1)
    opened, random = tiny_checkpoint(), Random(0)
    model, tokenizer = opened.model, opened.processor.tokenizer
    one = dict(prompt_inputs(opened, [Image.new("RGB", (32, 32), "grey")], "?"))  # of one token
    image = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])

    def ids(count):
        return [random.randrange(33, 200) for _ in range(count)]

    def inputs_of(prompts):
        longest = max(map(len, prompts))
        pads = [longest - len(row) for row in prompts]
        ids_BT = torch.tensor([[0] * pad + row for pad, row in zip(pads, prompts, strict=True)])
        inputs = {"input_ids": ids_BT, "attention_mask": (torch.arange(longest) >= torch.tensor(pads)[:, None]).long()}
        inputs["mm_token_type_ids"] = (ids_BT == image[1]).to(one["mm_token_type_ids"])
        for name in ("pixel_values", "image_grid_thw"):
            inputs[name] = torch.cat([one[name]] * len(prompts))
        return inputs, pads

    def check(logits_BWV, rows, widths):
        for logits_WV, row, width in zip(logits_BWV, rows, widths, strict=True):
            expected_WV = model(**inputs_of([row])[0]).logits[0, -width:]
            torch.testing.assert_close(logits_WV[:width], expected_WV, rtol=1e-3, atol=1e-4)

    run, buffers = Passes(model, 0, fixed_shapes), []
    for lengths in BATCHES:
        first, prompts = ids(2), [image + ids(length) for length in lengths]
        inputs, pads = inputs_of(prompts)
        run.begin(inputs, first, 4)
        check(run.logits_BWV, [row + first for row in prompts], [3] * len(prompts))
        kept = [row + first[: 1 + at % 2] for at, row in enumerate(prompts)]  # every other row rejects a token
        tokens = [ids(1 + at % 2) for at in range(len(kept))]
        rows = [row + more for row, more in zip(kept, tokens, strict=True)]
        starts = [pad + len(row) for pad, row in zip(pads, kept, strict=True)]
        check(run(starts, tokens), rows, list(map(len, tokens)))
        run.keep([len(rows) - 1])
        more = ids(2)
        check(run([pads[-1] + len(rows[-1])], [more]), [rows[-1] + more], [2])
        assert run.count == 2
        buffers.append(run._cache)
    assert [buffers.index(one) for one in buffers] == ([0, 0, 2, 3] if fixed_shapes else [0, 1, 2, 3])
