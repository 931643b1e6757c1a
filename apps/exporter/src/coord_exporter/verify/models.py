"""Compares the outputs of an export with those of PEFT's model on fixed prompts, in float32.

The reference is the unmerged adapter on its base, so that the merge itself is tested. Both models compute in float32
and differ in the rounding of merged weights to the checkpoint's dtype. The tolerance depends on the precision of that
dtype, and is at most half of the adapter's effect, unless rounding alone can exceed that. In a mixture of experts,
where rounding can tip a router, positions are compared as long as both models choose the same experts.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from peft import PeftModel
from PIL import Image

from coord_adapter import load_adapter
from coord_exporter.adapter import Adapter
from coord_exporter.checkpoint.modules import model_class
from coord_exporter.checkpoint.read import StoredCheckpoint, open_checkpoint
from coord_exporter.checkpoint.staging import ExportError
from coord_exporter.verify import comparing
from coord_exporter.vocabulary import find_tables

GREEDY_TOKENS = 64
_PROMPT = "Describe all objects in the image with their bounding boxes."
_RANDOM_TOKENS = 48

# Tolerated logit difference relative to the largest logit. Rounding to bf16 changes a weight by up to 2^-9 of itself,
# which adds up to 1e-2 over a few layers; in float32 only the order of summation differs, 2e-6 was measured. Rounding
# alone is assumed to be at most half of these values.
_TOLERANCES = {"BF16": 5e-2, "F16": 1e-2, "F32": 1e-4}


@dataclass(frozen=True)
class _Outcome:
    """Outputs of one model.

    Attributes:
        logits: float32 logits [T, V] per prompt
        greedy: greedy ids for the first prompt
        plain: the logits without adapter
        experts: per prompt the chosen experts [T, k], sorted, of each router; empty for a model without routers
    """

    logits: list[torch.Tensor]
    greedy: list[int]
    plain: list[torch.Tensor]
    experts: list[list[torch.Tensor]]


def verify_models(base: StoredCheckpoint, adapter: Adapter, folder: Path) -> dict:
    """Compare logits and greedy tokens of base + adapter under PEFT with those of an exported checkpoint.

    Args:
        base: the base
        adapter: its adapter
        folder: the exported checkpoint

    Returns:
        `max_difference`, `effect` (of the adapter) and `tolerance` in logits, at `positions` of `all_positions` (in a
        mixture of experts those before another expert is chosen); `tokens` and `equal_tokens` (before the first
        difference), and whether a prompt contained an `image`.

    Raises:
        ExportError: if the largest difference exceeds the tolerance, or if a model cannot be run
    """
    with comparing():
        reference, exported, image = _run_both(base, adapter, folder)
    largest = max(float(logits.abs().max()) for logits in reference.logits)
    # Rounding may tip a router towards other experts, which no tolerance on logits covers: logits are compared up to
    # that position, and `verify_tensors` compares all weights.
    lengths = list(map(_agreeing_positions, reference.experts, exported.experts, reference.logits))
    difference = _largest_difference(reference.logits, exported.logits, lengths)
    effect = _largest_difference(reference.logits, reference.plain, lengths)
    out = open_checkpoint(folder)
    widest = _TOLERANCES[out.tensors[find_tables(out).embed].dtype] * largest
    tolerance = min(widest, max(widest / 2, effect / 2))
    same = [mine == theirs for mine, theirs in zip(reference.greedy, exported.greedy, strict=True)]
    equal = (*same, False).index(False)
    if not difference <= tolerance:
        raise ExportError(
            f"verify: logits differ from PEFT's by {difference:.3g}, the tolerance is {tolerance:.3g} (the "
            f"adapter changes them by {effect:.3g}); nothing was written. The export is wrong, or the adapter behaves "
            "differently when merged: please report it"
        )
    return {
        "max_difference": difference,
        "effect": effect,
        "tolerance": tolerance,
        "tokens": len(same),
        "equal_tokens": equal,
        "positions": sum(lengths),
        "all_positions": sum(map(len, reference.logits)),
        "image": image,
    }


def _largest_difference(mine: list[torch.Tensor], theirs: list[torch.Tensor], lengths: list[int]) -> float:
    """Return the largest difference of logits within the first positions of each prompt; 0 if there are none."""
    pairs = [(one[:n], other[:n]) for one, other, n in zip(mine, theirs, lengths, strict=True) if n]
    return max((float((one - other).abs().max()) for one, other in pairs), default=0.0)


def _agreeing_positions(mine: list[torch.Tensor], theirs: list[torch.Tensor], logits_TV: torch.Tensor) -> int:
    """Return before which position two models send every token to the same experts; all of them without routers."""
    agree_T = torch.ones(len(logits_TV), dtype=torch.bool)
    for one_Tk, other_Tk in zip(mine, theirs, strict=True):
        agree_T &= (one_Tk == other_Tk).all(-1)
    return int(agree_T.long().cumprod(0).sum())


def _run_both(base: StoredCheckpoint, adapter: Adapter, folder: Path) -> tuple[_Outcome, _Outcome, bool]:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    prompts, image = _prompts(folder, base, adapter)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        reference = _answers(_load_peft(base, adapter), prompts, None)
        gc.collect()
        exported = _answers(_load(folder, base.config), prompts, reference.greedy)
    return reference, exported, image


def _answers(model: Any, prompts: list[dict], forced: list[int] | None) -> _Outcome:
    """Generate greedily from the first prompt; compute logits along `forced`, or along the generated ids if None."""
    settings = transformers.GenerationConfig(
        max_new_tokens=GREEDY_TOKENS, min_new_tokens=GREEDY_TOKENS, do_sample=False
    )
    first = prompts[0]
    length = first["input_ids"].shape[1]
    greedy = model.generate(**first, generation_config=settings)[0, length:].tolist()
    followed = torch.tensor([greedy if forced is None else forced])
    full = [_extended(first, followed), *prompts[1:]]
    logits, experts = [], []
    for prompt in full:
        with _routing(model) as chosen:
            logits.append(model(**prompt).logits[0].float())
        experts.append(chosen)
    with model.disable_adapter() if forced is None else nullcontext():
        plain = [model(**prompt).logits[0].float() for prompt in full] if forced is None else []
    return _Outcome(logits, greedy, plain, experts)


@contextmanager
def _routing(model: Any) -> Iterator[list[torch.Tensor]]:
    """Record the experts [T, k] that each router of a mixture of experts chooses, in the order of the calls.

    transformers' routers end in `Router` and return the indices of the chosen experts as their one integer tensor.
    """
    chosen: list[torch.Tensor] = []

    def record(module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        indices = [x for x in outputs if isinstance(x, torch.Tensor) and not x.is_floating_point()]
        chosen.extend(x.reshape(-1, x.shape[-1]).sort(-1).values for x in indices)

    routers = [module for module in model.modules() if type(module).__name__.lower().endswith("router")]
    handles = [router.register_forward_hook(record) for router in routers]
    try:
        yield chosen
    finally:
        for handle in handles:
            handle.remove()


def _extended(prompt: dict, ids_1T: torch.Tensor) -> dict:
    extended = {"input_ids": ids_1T, "attention_mask": torch.ones_like(ids_1T)}
    extended |= {name: torch.zeros_like(ids_1T) for name in prompt if name.endswith("token_type_ids")}
    return prompt | {name: torch.cat([prompt[name], tail.to(prompt[name].dtype)], 1) for name, tail in extended.items()}


def _prompts(folder: Path, base: StoredCheckpoint, adapter: Adapter) -> tuple[list[dict], bool]:
    """Return a prompt with an image if there is a processor, and a prompt of random ids with rows of the offsets."""
    random = _random_ids(base, adapter)
    try:
        processor = transformers.AutoProcessor.from_pretrained(folder, local_files_only=True)
        content = [{"type": "image", "image": _image()}, {"type": "text", "text": _PROMPT}]
        inputs = processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError):
        return [random], False  # no processor, or none with a chat template: reported as image = False
    return [dict(inputs), random], True


def _image() -> Image.Image:
    """Return a fixed image of 96 x 64 pixels with edges and colours."""
    y, x = np.mgrid[0:64, 0:96]
    red, green, blue = 255 * (x > 40), 4 * y, 255 * (((x // 8) + (y // 8)) % 2)
    return Image.fromarray(np.stack([red, green, blue], axis=-1).astype(np.uint8))


def _random_ids(base: StoredCheckpoint, adapter: Adapter) -> dict:
    """Return random ids [1, T] without special tokens, half of them rows of the offsets if there are any."""
    generator = torch.Generator().manual_seed(0)
    special = {value for name, value in base.config.items() if name.endswith("_token_id") and isinstance(value, int)}
    tables = find_tables(base)
    rows = min(tables.source(base, name).rows for name in (tables.embed, tables.head))
    ordinary = [i for i in range(rows) if i not in special]
    trained = [i for i in adapter.offsets.ids if i not in special] if adapter.offsets else []
    ids = [ordinary[int(k)] for k in torch.randint(len(ordinary), (_RANDOM_TOKENS,), generator=generator)]
    if trained:
        ids[::2] = [trained[int(k)] for k in torch.randint(len(trained), (len(ids[::2]),), generator=generator)]
    ids_1T = torch.tensor([ids])
    return {"input_ids": ids_1T, "attention_mask": torch.ones_like(ids_1T)}


def _load(folder: Path, config: dict) -> Any:
    return model_class(config).from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()


def _load_peft(base: StoredCheckpoint, adapter: Adapter) -> Any:
    model = _load(base.folder, base.config)
    if adapter.offsets is not None:
        return load_adapter(model, adapter.folder).eval()
    return PeftModel.from_pretrained(model, adapter.folder).eval()
