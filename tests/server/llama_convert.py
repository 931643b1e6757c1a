"""Converts a checkpoint to GGUF by llama.cpp's own converter: LLAMA.CPP CHECKPOINT OUT.

The converter knows a tokenizer by the ids of a sample text, that is by its vocabulary, and refuses that of the first
run.
Its words are cut as those of Qwen2 are.
"""

import sys

folder, checkpoint, out = sys.argv[1:]
sys.path[:0] = [folder, f"{folder}/gguf-py"]
import convert_hf_to_gguf  # noqa: E402
from conversion.base import TextModel  # noqa: E402

TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
for name, words in (("text", []), ("vision", ["--mmproj"])):
    sys.argv[1:] = [checkpoint, "--outfile", f"{out}/{name}.gguf", "--outtype", "f32", *words]
    convert_hf_to_gguf.main()
