"""Teacher forcing against a naive reference: the logits of all positions of one answer at a time, without padding."""

import math

import pytest
import torch
from tiny_run import tiny_config

from coord_codec import Instance
from coord_detect.model.card import as_trained
from coord_detect.model.checkpoint import open_checkpoint
from coord_detect.model.prompt import prompt_tokens
from coord_trainer.review.forcing import WINDOW, Forcing, KnownNames
from coord_trainer.review.label_text import label_order, write_labels

NAMES = frozenset({"red", "red circle", "red square", "blue square"})
OBJECTS = [
    {"desc": "red square", "bbox": [0.5, 0.6, 0.9, 0.95]},
    {"desc": "blue square", "bbox": [0.1, 0.2, 0.4, 0.5], "iscrowd": True},
    {"desc": "red", "bbox": [0.2, 0.1, 0.4, 0.3]},
]


@pytest.fixture(scope="module")
def forced(tiny_model):
    from PIL import Image

    config = as_trained(tiny_config(), tiny_model)
    noise = torch.randint(0, 256, (64, 96, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    images = [Image.fromarray(noise.numpy()), Image.fromarray(noise[:40].numpy())]
    instances = [Instance(image="a", objects=OBJECTS), Instance(image="b", objects=OBJECTS[:1])]
    checkpoint = open_checkpoint(tiny_model, config)
    with torch.no_grad():  # random weights find all tokens alike
        checkpoint.model.lm_head.weight.mul_(20)
    return config, checkpoint, images, instances


def log_softmax_of(config, checkpoint, image, text):
    """Return the ids of a text and its end, and the log-probabilities [T, V] before each of them."""
    inputs = dict(prompt_tokens(checkpoint.processor, checkpoint.system, [image], config.data.prompt))
    tokenizer = checkpoint.processor.tokenizer
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    prompt = inputs["input_ids"].shape[1]
    for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
        if name in inputs:
            added = {"input_ids": ids, "attention_mask": [1] * len(ids)}.get(name, [0] * len(ids))
            inputs[name] = torch.cat([inputs[name], torch.tensor([added])], dim=1)
    with torch.no_grad():
        logits_TV = checkpoint.model(**inputs).logits[0, prompt - 1 : -1]
    return ids, logits_TV.float().log_softmax(dim=1)


def test_forcing_equals_the_logits_of_all_positions(forced):
    config, checkpoint, images, instances = forced
    answers = Forcing(checkpoint, config, NAMES)(images, instances, [7, 8])
    tokenizer, vocab = checkpoint.processor.tokenizer, checkpoint.vocab
    assert [[label.object for label in answer.labels] for answer in answers] == [[2, 0], [0]]
    for image, instance, answer in zip(images, instances, answers, strict=True):
        text = "".join(
            f"<obj_start>{o.desc}{''.join(f'<|coord_{round(1000 * c)}|>' for c in o.bbox)}<obj_end>"
            for o in (instance.objects[label.object] for label in answer.labels)
        )
        ids, logp_TV = log_softmax_of(config, checkpoint, image, text)
        own = [float(logp_TV[place, token]) for place, token in enumerate(ids)]
        assert {label.image_id for label in answer.labels} == {7 if instance.image == "a" else 8}
        assert answer.end_logprob == pytest.approx(own[-1], abs=1e-4)
        place = 0
        for label in answer.labels:
            obj = instance.objects[label.object]
            name = tokenizer(obj.desc, add_special_tokens=False)["input_ids"]
            place += 1
            assert label.name_logprob_sum == pytest.approx(sum(own[place : place + len(name)]), abs=1e-4)
            own_name = closed(checkpoint, logp_TV[place:], name)
            assert label.name_logprobs[obj.desc] == pytest.approx(own_name, abs=1e-3)
            assert sum(map(math.exp, label.name_logprobs.values())) == pytest.approx(1, abs=1e-5)
            assert label.name_logprobs.keys() == NAMES
            place += len(name)
            assert label.coord_logprobs == pytest.approx(own[place : place + 4], abs=1e-4)
            for side in range(4):
                p_K = logp_TV[place + side, vocab.first_id : vocab.first_id + 1000].softmax(0).double()
                bins_K = torch.arange(1000)
                mean = float((p_K * bins_K).sum())
                assert label.coord_expected[side] == pytest.approx(mean / 1000, abs=1e-5)
                entropy = -float(sum(p * math.log(p) for p in p_K.tolist() if p > 0))
                assert label.coord_entropy[side] == pytest.approx(entropy, abs=1e-3)
                centre = round(1000 * obj.bbox[side])
                near = sum(p for k, p in enumerate(p_K.tolist()) if abs(k - centre) <= WINDOW)
                assert label.coord_window_mass[side] == pytest.approx(near, abs=1e-5)
            place += 5


def closed(checkpoint, logp_TV, name):
    """Return the log-probability of the tokens of a name where nothing but the known names are allowed."""
    known = [checkpoint.processor.tokenizer(one, add_special_tokens=False)["input_ids"] for one in NAMES]
    coordinates = list(checkpoint.vocab.ids)
    total = 0.0
    for count in range(len(name) + 1):
        further = {ids[count] for ids in known if ids[:count] == name[:count] and len(ids) > count}
        can_follow = [*further, *(coordinates if name[:count] in known else ())]
        chosen = [name[count]] if count < len(name) else coordinates
        total += float(logp_TV[count, chosen].logsumexp(0) - logp_TV[count, can_follow].logsumexp(0))
    return total


@pytest.mark.parametrize("style", ["markers", "json"])
@pytest.mark.parametrize("markers", ["obj", "qwen"])
@pytest.mark.parametrize("coord_tokens", [True, False])
def test_parts_of_the_label_text_are_names_and_coordinates(style, markers, coord_tokens):
    names = ["desc", "bbox_2d 12", 'a "quoted" [3] name', "Bär"]
    objects = [{"desc": name, "bbox": [0.1, 0.2, 0.3 + n / 10, 0.5]} for n, name in enumerate(names)]
    instance = Instance(image="a", objects=objects)
    custom = {"coord_tokens": {"enabled": coord_tokens}} | (
        {"coord_soft_ce_w1": {"enabled": True}} if coord_tokens else {}
    )
    data = tiny_config(data={"style": style, "markers": markers, "max_objects": 3}, custom=custom).data
    indices, beyond = label_order(instance, data)
    assert (indices, beyond) == ([0, 1, 2], 1)
    written = write_labels(instance, [3, 2, 1, 0], data, coord_tokens)
    for label in written.labels:
        name = written.text[slice(*label.name)]
        assert name.replace("\\", "") == names[label.index]
        bins = [written.text[slice(*span)].strip("<|>").removeprefix("coord_") for span in label.coordinates]
        assert bins == ["100", "200", str(300 + 100 * label.index), "500"]


def test_names_that_part_together_share_their_probability():
    """Of a made tree: `ca`, `cab`, `cat` and two that begin with `d`; probabilities by hand."""
    names = {(1, 2): "ca", (1, 2, 3): "cab", (1, 2, 4): "cat", (5, 6): "do", (5, 7, 8): "dry"}
    known = KnownNames(names, [9])
    logits = torch.zeros(10)
    chosen = [known.choices(logits, beginning).tolist() for beginning in ((), (1,), (1, 2), (1, 2, 4))]
    found = {name: math.exp(log_p) for name, log_p in known.distribution((1, 2, 4), chosen).items()}
    third = 0.5 / 3  # after `ca`: its end, `b` or `t`
    assert found == pytest.approx({"ca": third, "cab": third, "cat": third, "do": 0.25, "dry": 0.25})
