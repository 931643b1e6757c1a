"""Steps of a whole run on a GPU: the fused head trains as the readable one does, and answers are scored."""

import pytest
import torch

pytest.importorskip("swift")
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.mark.parametrize("packing", [False, True], ids=["padded", "packed"])
def test_steps_with_lora_and_offsets_equal_those_of_the_readable_form(tmp_path, packing):
    from tiny_run import read_lines, tiny_config  # needs coord_trainer, which a machine with a GPU may lack

    from coord_trainer import train_and_score

    losses = {}
    for fused in (True, False):
        config = tiny_config(
            custom={"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
            data={"packing": packing, "shapes": {"train": 8, "heldout": 2}},
            model=tiny_config().model.model_dump() | {"fused_head": fused},
            training={
                "tuner_type": "lora",
                "target_modules": ["all-linear"],
                "max_steps": 3,
                "save_steps": 3,
                "logging_steps": 1,
                "per_device_train_batch_size": 4,
                "train_dataloader_shuffle": False,
            },
        )
        result = train_and_score(config, tmp_path / str(fused))
        assert result.evaluation is not None
        losses[fused] = [line["loss"] for line in read_lines(tmp_path / str(fused)) if "loss" in line]
    assert len(losses[True]) == 3
    torch.testing.assert_close(*map(torch.tensor, losses.values()), rtol=1e-4, atol=0)
