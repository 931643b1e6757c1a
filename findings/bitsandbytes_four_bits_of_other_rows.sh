#!/usr/bin/env bash
# bitsandbytes 0.50.2, PyTorch 2.15.0, a CPU with AVX-512: `dequantize_4bit` returns other weights than were quantised if a row is longer than
# a block of 64 and no multiple of it. `quantize_4bit` scales blocks of the flattened matrix, from row to row; the kernel of these CPUs takes
# the scales of other blocks. Nothing is raised: a matrix of 4 x 96 comes back with an error of about .25 where 4 x 128 has .09.
# Why it matters for boxes: fine-tuned or answering on a CPU with `load_in_4bit`, a detector has wrong weights in such layers only, as in
# the vision tower of PaliGemma and Gemma 3 (SigLIP so400m, rows of 4,304), and answers with worse boxes instead of an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check bitsandbytes==0.50.2 torch==2.15.0 numpy==2.4.6
cat > rows.py <<'PY'
import sys

import torch
from bitsandbytes.functional import dequantize_4bit, get_4bit_type, quantize_4bit

if torch.backends.cpu.get_cpu_capability() != "AVX512":
    sys.exit("needs a CPU with AVX-512; others take another kernel")
torch.manual_seed(0)
wrong = {}
for columns in (24, 96, 128, 4304):
    weight = torch.randn(4, columns)
    packed, state = quantize_4bit(weight, blocksize=64, quant_type="nf4")
    levels = torch.stack([packed.flatten() >> 4, packed.flatten() & 15], dim=1).flatten().long()
    scales = state.absmax.repeat_interleave(64)[: weight.numel()]
    expected = (get_4bit_type("nf4", device="cpu")[levels] * scales).reshape(weight.shape)
    seen = dequantize_4bit(packed, state)
    error, expected_error = (float((one - weight).norm() / weight.norm()) for one in (seen, expected))
    wrong[columns] = int((seen != expected).sum())
    print(f"rows of {columns}: expected error {expected_error:.3f}, seen {error:.3f}; {wrong[columns]} of {weight.numel()} weights differ")
assert not wrong[24] and not wrong[128] and wrong[96] > 90 and wrong[4304] > 4000, wrong
PY
CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 venv/bin/python rows.py
