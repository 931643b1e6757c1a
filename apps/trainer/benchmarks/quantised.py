"""Scores a model whose weights are quantised as it is loaded, by the libraries that transformers takes for it.

    uv run --with torchao python apps/trainer/benchmarks/quantised.py torchao-int8 MODEL ANNOTATIONS IMAGES OUT

The first word is one of float32, bfloat16, torchao-int8, torchao-int4, bitsandbytes-int8, bitsandbytes-nf4, quanto-int8
and quanto-int4. Embedding and head stay as they are: transformers leaves them out of each. Two ways of a processor are
left out: bitsandbytes packs nf4 anew for AVX512 in bfloat16, which fails unless 64 divides the rows, and quanto
compiles what unpacks int4, for minutes; PyTorch's operations do the same.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import transformers
import typer

from coord_detect.detection.command import answer_request
from coord_detect.model import checkpoint
from coord_detect.served.request import Request
from coord_trainer.config.run_config import load_run_config


def loading(kind: str) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` by which a model is loaded with weights of a kind."""
    library, _, weights = kind.partition("-")
    if library == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup

        by_groups = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
        config = by_groups if weights == "int4" else Int8WeightOnlyConfig()
        return {"quantization_config": transformers.TorchAoConfig(config)}
    if library == "bitsandbytes":
        import bitsandbytes.nn.modules

        bitsandbytes.nn.modules.has_avx512bf16 = lambda: False
        bits = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"} if weights == "nf4" else {"load_in_8bit": True}
        return {"quantization_config": transformers.BitsAndBytesConfig(**bits), "device_map": "cpu"}
    if library == "quanto":
        from optimum.quanto.library.extensions import cpp

        unpack = {4: lambda packed: torch.cat([packed & 15, packed >> 4])}
        cpp.ext = SimpleNamespace(lib=SimpleNamespace(unpack=lambda packed, bits: unpack[bits](packed)))
        torch.inference_mode = torch.no_grad  # in which quanto's transposed weights fail
        return {"quantization_config": transformers.QuantoConfig(weights=weights)}
    return {"dtype": getattr(torch, library)}


def main(kind: str, model: Path, annotations: str, images: str, out: Path) -> None:
    """Answer annotated images with quantised weights, and score the answers."""
    usual, words = transformers.AutoModelForImageTextToText, loading(kind)

    class Quantised:
        @staticmethod
        def from_pretrained(source: Any, **given: Any) -> Any:
            return usual.from_pretrained(source, **given | words)

    config = load_run_config(None, ["evaluation.device=cpu"], trains=False)
    with patch.object(checkpoint, "AutoModelForImageTextToText", Quantised):
        answer_request(Request(model, (annotations,), out, images=images, draw=False), config)


if __name__ == "__main__":
    typer.run(main)
