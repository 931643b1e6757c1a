"""Forced names have the probability that a forward pass over the answer gives them without the force."""

from dataclasses import replace
from random import Random

import pytest
import torch
from PIL import Image

from coord_codec.vocab import marker_family
from coord_detect.answers.generate import prompt_inputs
from coord_detect.speed.passes import followed_by
from coord_trainer import Detector
from coord_trainer.config.run_config import load_run_config


def allowed_by(grammar, tokenizer, vocab, before, names, size):
    """The tokens [V] that may follow the beginning of a name, stated anew."""
    allowed_V = torch.ones(size, dtype=torch.bool)
    if grammar == "none":
        return allowed_V
    spelled = [tokenizer(name, add_special_tokens=False)["input_ids"] for name in names]
    words = set(range(len(tokenizer))) - set(tokenizer.get_added_vocab().values())
    if grammar == "names":
        words = {ids[len(before)] for ids in spelled if len(ids) > len(before) and ids[: len(before)] == before}
    ends = bool(before) if grammar == "markers" else before in spelled
    allowed_V[:] = False
    allowed_V[sorted(words | (set(vocab.ids) if ends else set()))] = True
    return allowed_V


@pytest.mark.slow
@pytest.mark.parametrize(("grammar", "speed"), [("none", "plain"), ("markers", "plain"), ("names", "exact")])
def test_probability_of_a_forced_name_is_that_without_the_force(tiny_model, grammar, speed):
    names, only = ("red circle", "red", "blue square", "green"), ["red", "blue square"]
    words = ["data.markers=obj", "evaluation.max_new_tokens=40", f"evaluation.decoding.grammar={grammar}"]
    config = load_run_config(None, [*words, f"evaluation.speed={speed}"], trains=False)
    model = Detector(tiny_model, config, names=names, only=only).model
    model = model if grammar != "names" else with_trained(model, names)
    checkpoint = model.engine.checkpoint
    tokenizer, vocab = checkpoint.processor.tokenizer, checkpoint.vocab
    images = [Image.frombytes("RGB", (96, 64), Random(seed).randbytes(96 * 64 * 3)) for seed in range(3)]
    start, _ = marker_family("obj").ids(tokenizer)
    total = 0
    for image, record in zip(images, model.answers(images), strict=True):
        ids = tokenizer(record["text"], add_special_tokens=False)["input_ids"]
        inputs = followed_by(prompt_inputs(checkpoint, [image], config.data.prompt), [ids])
        with torch.inference_mode():
            logits_TV = checkpoint.model(**inputs).logits[0, -len(ids) - 1 :].float()
        expected, before = [], None
        for place, token in enumerate(ids):
            row_V = logits_TV[place]
            if before is not None:
                allowed_V = allowed_by(grammar, tokenizer, vocab, before, names, len(row_V))
                log_p_V = row_V.masked_fill(~allowed_V, -torch.inf).log_softmax(dim=0)
                if token in vocab.ids:
                    expected[-1] += log_p_V[list(vocab.ids)].logsumexp(dim=0).item()
                    before = None
                else:
                    expected.append(log_p_V[token].item())
                    before = [*before, token]
            elif token == start:
                before = []
        total += len(expected)
        assert record["desc_logprobs"][: len(expected)] == pytest.approx(expected, abs=1e-3)
        found = {part.partition("<|coord")[0] for part in record["text"].split("<obj_start>")[1:]}
        assert found <= {*only, ""}
    assert total > 3


def with_trained(model, names):
    """The model as one that was trained on these names."""
    return replace(model, engine=replace(model.engine, names=frozenset(names)))
