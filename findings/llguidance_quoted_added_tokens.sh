#!/usr/bin/env bash
# llguidance 1.9.1: in a Lark grammar a quoted added token is that token when it stands alone, and its letters as soon as an alternative
# stands beside it; a range of token ids means the tokens in both places.
# Why it matters for boxes: `"<|coord_0|>" | "<|coord_1|>"` makes a model spell a coordinate token by token, which no parser of ids reads.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check llguidance==1.9.1 numpy==2.2.6
venv/bin/python - <<'PYTHON'
import json

import numpy as np
from llguidance import LLMatcher, LLTokenizer

vocab = {chr(code): number for number, code in enumerate(range(33, 127))}
flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
added = [{"id": len(vocab) + n, "content": f"<|coord_{n}|>"} | flags for n in range(2)]
model = {"type": "BPE", "vocab": vocab, "merges": [], "fuse_unk": False, "byte_fallback": False}
tokenizer = LLTokenizer(json.dumps({"version": "1.0", "added_tokens": added, "decoder": bytes_, "model": model}), eos_token=0)


def first_tokens(grammar):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar))
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return [tokenizer.decode_str([int(token)]) for token in bits[: tokenizer.vocab_size].nonzero()[0]]


alone = first_tokens('start: "<|coord_0|>"')
beside = first_tokens('start: "<|coord_0|>" | "<|coord_1|>"')
ids = first_tokens(f"start: <[{len(vocab)}-{len(vocab) + 1}]>")
print("llguidance 1.9.1, the tokens that may come first")
print(f"alone: {alone}; with an alternative: {beside} (expected: both tokens); by ids: {ids}")
assert alone == ["<|coord_0|>"] and beside == ["<"] and ids == ["<|coord_0|>", "<|coord_1|>"]
PYTHON
