"""Drafted answers equal those of plain decoding: tokens, ends and probabilities."""

import pytest
import torch
from PIL import Image
from tiny_run import tiny_config

from coord_trainer.answers.generate import answer_images
from coord_trainer.config.decoding import Decoding
from coord_trainer.model.checkpoint import open_checkpoint

NAMES = {"red circle", "red square", "blue circle"}
NUMBERS = ("coord_logprobs", "coord_expected", "coord_spread", "coord_quantiles", "coord_mass")


@pytest.fixture(scope="module")
def opened(tiny_model):
    """The tiny model, with the start marker likelier than at random, so that free answers have objects too."""
    checkpoint = open_checkpoint(tiny_model, tiny_config())
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in checkpoint.model.model.language_model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return checkpoint


@pytest.fixture(scope="module")
def images():
    """Of different sizes, so that the prompts of a batch are padded."""
    sizes = ((96, 96), (64, 32), (96, 96), (32, 96), (64, 64))
    return [Image.effect_noise(size, 90 + 10 * at).convert("RGB") for at, size in enumerate(sizes)]


def with_slots(checkpoint):
    from dataclasses import replace

    rows = checkpoint.model.get_input_embeddings().weight
    return replace(checkpoint, slots_SH=rows[[40, 50, 60]].detach() * 1.5)


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one["text"] == other["text"]
        assert one["finish_reason"] == other["finish_reason"]
        assert one.keys() == other.keys()
        for name in (*NUMBERS, *(["desc_logprobs"] if "desc_logprobs" in other else [])):
            torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(other[name]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("style", "grammar", "limit"),
    [
        ("obj", "none", 40),
        ("obj", "markers", 60),
        ("obj", "markers", 13),
        ("obj", "names", 44),
        ("qwen", "names", 60),
        ("json", "markers", 90),
    ],
)
def test_exact_equals_plain_alone_and_in_padded_batches(style, grammar, limit, opened, images):
    data = tiny_config(data={"style": "json"} if style == "json" else {"markers": style}).data
    data = data.model_copy(update={"max_objects": 3})
    names = NAMES if grammar == "names" else None
    asked = (data, Decoding(grammar=grammar), limit, names)
    expected = answer_images(opened, images, *asked)
    assert len({answer["text"] for answer in expected}) > 1
    for checkpoint in (opened, with_slots(opened)):
        assert_equal(answer_images(checkpoint, images, *asked, speed="exact"), expected)
        assert_equal(answer_images(checkpoint, images[3:4], *asked, speed="exact"), expected[3:4])


def test_exact_equals_plain_where_answers_are_filled_and_scored_without_the_grammar(opened, images):
    data = tiny_config(data={"noise_objects": 2}).data
    asked = (data, Decoding(grammar="names", filled=True), 60, NAMES)
    expected = answer_images(opened, images[:2], *asked)
    assert_equal(answer_images(opened, images[:2], *asked, speed="exact"), expected)
