"""DeepSpeed's settings before they reach ms-swift."""

import pytest

from coord_codec import InputError
from coord_trainer.swift.pipeline import read_deepspeed, spell_out

ARGUMENTS = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "max_grad_norm": 0.5}


def test_spell_out_writes_batch_sizes_and_clipping():
    found = spell_out({"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}, ARGUMENTS, ranks=4)
    assert found["train_batch_size"] == 24 and found["train_micro_batch_size_per_gpu"] == 2
    assert found["gradient_clipping"] == 0.5  # a silent configuration would clip at 1.0
    assert found["zero_optimization"] == {"stage": 2} and found["zero_force_ds_cpu_optimizer"] is False
    with pytest.raises(InputError, match=r"gradient_clipping to 1.0.*max_grad_norm"):
        spell_out({"gradient_clipping": 1.0}, ARGUMENTS, ranks=1)


def test_read_deepspeed_takes_a_preset_a_file_or_a_mapping(tmp_path):
    (tmp_path / "own.json").write_text('{"a": 1}')
    assert read_deepspeed("zero2")["zero_optimization"]["stage"] == 2
    assert read_deepspeed(str(tmp_path / "own.json")) == {"a": 1}
    assert read_deepspeed({"a": 2}) == {"a": 2}
    with pytest.raises(InputError, match="zero2, "):
        read_deepspeed("zero4")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InputError, match=r"a JSON file or a mapping, .*list\.json: expected an object, found list"):
        read_deepspeed(str(tmp_path / "list.json"))
