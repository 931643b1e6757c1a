#!/usr/bin/env bash
# llama.cpp (converter in llama-cpp-python 0.3.36, xllamacpp 2026.10.11549): the converter makes every added token of the form `<|...|>` a
# control token, whatever tokenizer.json says, and llama.cpp writes control tokens as nothing. Of two added tokens with `special` false
# and the same content, `<|coord_7|>` disappears from texts and `<coord_7>` stays.
# Why it matters for boxes: a detector whose coordinates are tokens loses all its numbers, while transformers keeps them with
# skip_special_tokens; labels stay, no error or warning tells it, and `--special` of the server, named for control tokens, brings them back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6 transformers==5.19.0 xllamacpp==2026.10.11549 \
  scikit-build-core==1.1.2 pathspec==1.1.1 packaging==26.2
venv/bin/pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-binary llama-cpp-python llama-cpp-python==0.3.36
tar -xzf llama_cpp_python-0.3.36.tar.gz
cat > tokens.py <<'PY'
import sys

sources = "llama_cpp_python-0.3.36/vendor/llama.cpp"
sys.path[:0] = [sources, f"{sources}/gguf-py"]
import convert_hf_to_gguf
import xllamacpp
from conversion.base import TextModel
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TOKENS = ["<coord_7>", "<|coord_7|>"]
alphabet = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
bpe = Tokenizer(models.BPE(alphabet, []))
bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
bpe.add_special_tokens(["<|end|>"])
bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in TOKENS])
PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>").save_pretrained("model")
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
Qwen2ForCausalLM(Qwen2Config(vocab_size=len(alphabet) + 3, eos_token_id=len(alphabet), **sizes)).save_pretrained("model")

TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"  # it knows tokenizers by the ids of a sample text
sys.argv[1:] = ["model", "--outfile", "model.gguf", "--outtype", "f32"]
convert_hf_to_gguf.main()

tokenizer = AutoTokenizer.from_pretrained("model")
settings = xllamacpp.CommonParams()
settings.model.path, settings.n_ctx, settings.warmup = "model.gguf", 64, False
server = xllamacpp.Server(settings)


def generated(number):
    """Return the text of an answer that is held to one token."""
    request = {"prompt": "at", "max_tokens": 1, "temperature": 0, "logit_bias": [[number, 1000]]}
    return server.handle_completions(request)["choices"][0]["text"]


numbers = tokenizer.convert_tokens_to_ids(TOKENS)
expected = [tokenizer.decode([number], skip_special_tokens=True) for number in numbers]
seen = [generated(number) for number in numbers]
print("expected, as transformers writes them without special tokens:", expected)
print("seen:", seen)
assert expected == TOKENS and seen == ["<coord_7>", ""]
PY
CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 venv/bin/python tokens.py
