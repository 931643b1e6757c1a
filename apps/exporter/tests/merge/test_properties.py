"""Generated PEFT configurations: what comes out answers as the adapted model does, or the merge is refused."""

import tempfile
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tiny_checkpoint import TEXT_LINEAR, load, make_adapter

from coord_exporter import InputError, merge
from coord_exporter.adapter import open_adapter
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.verify.tensors import verify_tensors

TARGETS = ["q_proj", "v_proj", "down_proj", "qkv", "linear_fc1", "embed_tokens", "lm_head"]
IDS = torch.tensor([[*range(40, 70), *range(300, 330), 7, 3, 1250]])


@st.composite
def configurations(draw):
    """Arguments of `LoraConfig`, and the offsets beside them."""
    targets = draw(st.lists(st.sampled_from(TARGETS), unique=True, max_size=4))
    lora = {"target_modules": targets or TEXT_LINEAR, "r": draw(st.integers(1, 5)), "lora_dropout": 0.0}
    lora["lora_alpha"] = draw(st.integers(1, 12))
    lora["use_rslora"], lora["use_dora"] = draw(st.booleans()), draw(st.booleans())
    lora["rank_pattern"] = draw(st.sampled_from([{}, {"q_proj": 3}, {r".*layers\.1.*v_proj": 2, "qkv": 4}]))
    lora["alpha_pattern"] = draw(st.sampled_from([{}, {"down_proj": 5}, {"lm_head": 2, "embed_tokens": 9}]))
    lora["bias"] = draw(st.sampled_from(["none", "all", "lora_only"]))
    lora["modules_to_save"] = draw(st.sampled_from([None, ["merger"], ["lm_head"], ["embed_tokens"]]))
    tokens = [
        None,
        [5, 1250],
        {"embed_tokens": [7, 3]},
        {"lm_head": [40, 2]},
        {"embed_tokens": [7], "lm_head": [9, 41]},
    ]
    lora["trainable_token_indices"] = draw(st.sampled_from(tokens))
    lora["ensure_weight_tying"] = draw(st.booleans())
    return lora, draw(st.sampled_from([None, "tied", "separate"]))


@pytest.mark.slow
def test_merge_of_any_configuration_is_the_adapted_model_or_refused(bases):
    outcomes = Counter()

    @settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(configuration=configurations(), tied=st.booleans())
    def check(configuration, tied):
        lora, offsets = configuration
        base = bases(tied, "float32")
        with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = Path(name)
            try:
                model = make_adapter(folder / "adapter", base, offsets, **lora)
                with torch.inference_mode():
                    expected = model(input_ids=IDS).logits
            except (ValueError, TypeError, KeyError, RuntimeError, AttributeError):
                outcomes["PEFT refuses"] += 1
                assume(False)
            try:
                merge(base, folder / "adapter", folder / "out", verify=False, quiet=True)
            except InputError as error:
                outcomes[f"refused: {str(error).partition(': ')[2][:90]}"] += 1
                return
            with torch.inference_mode():
                found = load(folder / "out")(input_ids=IDS).logits
            assert (found - expected).abs().max() < 2e-4 * expected.abs().max()
            opened = open_adapter(folder / "adapter")
            assert verify_tensors(open_checkpoint(base), opened, open_checkpoint(folder / "out"))["compared"]
            outcomes["merged"] += 1

    check()
    assert outcomes["merged"] and not any("adapted tensors are not" in reason for reason in outcomes)
