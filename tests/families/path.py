"""The way of a checkpoint of any family: expanded, trained for a step with offsets and LoRA, merged, loaded."""

import inspect
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, get_peft_model
from tiny_zoo import CLASSES, make_model, make_tied, with_ties
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from coord_adapter import install_coord_offset_adapter, with_offset_modules
from coord_codec import CoordVocab
from coord_exporter import ExportError, InputError, expand_vocab, merge
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.vocabulary import find_tables
from coord_losses import CoordObjective, ObjectiveConfig
from coord_losses.hf import patch

TARGETS = {"llama4": ["q_proj", "o_proj", "down_proj"]}
"""Layers with LoRA where PEFT's `all-linear` takes one that is none: Llama 4's router returns two tensors."""

WORKS, REFUSED, NOT_TRIED = "works", "refused", "not tried"
ENCODER_DECODER = "an encoder-decoder, whose labels are not shifted as a causal model's"
NEEDS_IMAGES = "its forward pass fails for text alone: {}"


@dataclass(frozen=True)
class Outcome:
    """What became of a family: `works`, or `refused` or `not tried` with the reason."""

    kind: str
    reason: str = ""


def write_tokenizer(folder):
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(sorted(ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken("<|image_pad|>")])
    tokenizer.save(str(folder / "tokenizer.json"))


def inputs(model, ids_1T):
    """Return text alone as the inputs of a model, which may ask for token types in training."""
    given = {"input_ids": ids_1T, "attention_mask": torch.ones_like(ids_1T)}
    names = [name for name in inspect.signature(model.forward).parameters if name.endswith("token_type_ids")]
    return given | {name: torch.zeros_like(ids_1T) for name in names}


def logits_of(model, ids_1T):
    with torch.inference_mode():
        return model.eval()(**inputs(model, ids_1T)).logits.float()


def unsuitable(family, model, ids_1T):
    """Return why a tiny model of a family cannot be tried, None if it can."""
    if getattr(model.config, "is_encoder_decoder", False):
        return Outcome(REFUSED, ENCODER_DECODER)
    try:
        logits_of(model, ids_1T)
    except Exception as error:
        return Outcome(NOT_TRIED, NEEDS_IMAGES.format(first_line(error)))
    return None


def first_line(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.140}"


def named(error, folder):
    """Return a message without the folder of the trial."""
    return str(error).replace(f"{folder}/", "")


def greedy(model, ids_1T, count=6):
    """Return the ids of an answer, each the likeliest after the text before."""
    for _ in range(count):
        ids_1T = torch.cat([ids_1T, logits_of(model, ids_1T)[:, -1:].argmax(-1)], 1)
    return ids_1T[0, -count:].tolist()


def walk(family: str, folder: Path, ties: tuple[bool | None, bool | None] | None = None) -> Outcome:
    """Take a tiny model of a family the whole way.

    Args:
        family: `model_type`
        folder: an empty folder
        ties: `tie_word_embeddings` of a tied base, at the top of its configuration and in text_config, None where it
            is absent; without it the base has the family's default

    Raises:
        AssertionError: if a step has another result than transformers and PEFT
    """
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    try:
        model = make_model(family) if ties is None else make_tied(family)
    except Exception as error:
        return Outcome(NOT_TRIED, f"no tiny model of its default configuration: {first_line(error)}")
    kind = getattr(transformers, CLASSES[family])
    plain_ids = torch.randint(6, 250, (1, 8), generator=torch.Generator().manual_seed(1))
    if (reason := unsuitable(family, model, plain_ids)) is not None:
        return reason
    model.save_pretrained(folder / "plain")
    if ties is not None:
        path = folder / "plain" / "config.json"
        path.write_text(json.dumps(with_ties(json.loads(path.read_text()), *ties)))
    write_tokenizer(folder / "plain")
    try:
        report = expand_vocab(folder / "plain", folder / "base", quiet=True)
    except ValueError as error:
        return Outcome(REFUSED, f"expand-vocab: {named(error, folder)}")

    model, info = kind.from_pretrained(folder / "base", output_loading_info=True)
    assert not info["missing_keys"], info["missing_keys"]
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert find_tables(open_checkpoint(folder / "base")).tied is tied

    vocab = CoordVocab(report.first_coord)
    try:
        install_coord_offset_adapter(model, vocab.ids)
    except ValueError as error:
        return Outcome(REFUSED, f"offsets: {error}")
    lora = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": TARGETS.get(family, "all-linear")}
    adapted = get_peft_model(model, LoraConfig(**with_offset_modules(lora)))
    coords = torch.tensor([[vocab.bin_to_id(k) for k in (10, 200, 500, 900)]])
    ids_1T = torch.cat([plain_ids, coords, plain_ids[:, :3]], 1)
    patch(model, CoordObjective(ObjectiveConfig.soft(), vocab))
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    loss = adapted.train()(**inputs(model, ids_1T), labels=ids_1T).loss
    loss.backward()
    offsets = [p.grad for name, p in adapted.named_parameters() if "embed_offset" in name and p.requires_grad]
    assert torch.isfinite(loss) and all(grad is not None and grad.abs().sum() > 0 for grad in offsets)
    torch.optim.SGD(trained, lr=0.5).step()
    adapted.save_pretrained(folder / "adapter")

    try:
        merge(folder / "base", folder / "adapter", folder / "out", verify=True, quiet=True)
    except InputError as error:
        return Outcome(REFUSED, f"merge: {named(error, folder)}")
    except ExportError as error:
        if "PEFT does not load" not in str(error):
            raise
        return Outcome(REFUSED, "merge --verify: PEFT does not load the adapter that it saved")
    merged, info = kind.from_pretrained(folder / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    expected, found = logits_of(adapted, ids_1T), logits_of(merged, ids_1T)
    assert torch.allclose(found, expected, atol=1e-4 * float(expected.abs().max()))
    assert not torch.allclose(logits_of(kind.from_pretrained(folder / "base"), ids_1T), expected, atol=1e-4)
    assert greedy(merged, plain_ids) == greedy(adapted, plain_ids)
    return Outcome(WORKS)
