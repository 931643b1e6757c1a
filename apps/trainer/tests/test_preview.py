"""`train --dry-run`: what it prints, and its memory against a real step's."""

import runpy
from pathlib import Path

import pytest

from coord_codec import InputError
from coord_trainer.config.run_config import load_run_config
from coord_trainer.config.swift_arguments import argument_table

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "memory.py"
OFFSETS = [
    "custom.coord_soft_ce_w1.enabled=true",
    "custom.coord_offset.enabled=true",
    "custom.coord_offset.embed_lr=4e-4",
    "custom.coord_offset.head_lr=2e-4",
    "custom.coord_offset.tie_head=false",
    "training.tuner_type=lora",
    "training.use_dora=true",
    "training.target_modules=[all-linear]",
    "training.learning_rate=1e-3",
    "training.vit_lr=1e-4",
    "training.aligner_lr=5e-4",
    "data.shapes.train=8",
]


@pytest.mark.slow
def test_dry_run_gives_the_rates_and_parameters_of_the_run(capsys):
    pytest.importorskip("swift")
    from coord_trainer.preview import dry_run

    figures = dry_run(load_run_config(None, OFFSETS))
    found = [(group["lr"], group["weight_decay"], group["parameters"]) for group in figures["groups"]]
    rates = {lr for lr, _, _ in found}
    assert rates == {1e-3, 1e-4, 5e-4, 4e-4, 2e-4}
    assert [row for row in found if row[0] in (4e-4, 2e-4)] == [(4e-4, 0.0, 96_000), (2e-4, 0.0, 96_000)]
    assert sum(parameters for _, _, parameters in found) == figures["parameters"]["trained"]
    assert figures["parameters"]["offsets"] == 192_000
    assert figures["gradients"] == 4 * figures["parameters"]["trained"]
    assert figures["optimizer"] == pytest.approx(2 * figures["gradients"], rel=1e-3)
    told = capsys.readouterr().out
    assert "coordinates 3" in told and "peak" in told and "embed_lr: 0.0004" in told
    # Eight images in batches of 16 for three epochs, as ms-swift's defaults are.
    assert "3 steps of 16 samples, of 8 samples in an epoch" in told and told.index("steps of") < told.index("peak")
    assert told.index("peak") < told.index("embed_lr") and "position_side" not in told


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", argument_table()["optimizer"].values.split(", "))
def test_offsets_learn_at_the_rates_of_their_section_under_every_optimizer(optimizer):
    pytest.importorskip("swift")
    from coord_trainer.preview import dry_run

    more = [f"training.optimizer={optimizer}", "custom.coord_offset.weight_decay=0.03", "training.weight_decay=0.2"]
    if optimizer in ("default", "lorap", "muon"):
        more += ["training.vit_lr=null", "training.aligner_lr=null"]
    if optimizer == "muon":  # updates complete matrices, which an adapter has none of
        with pytest.raises(InputError, match=r"training\.tuner_type"):
            load_run_config(None, [*OFFSETS, *more])
        return
    groups = dry_run(load_run_config(None, [*OFFSETS, *more]))["groups"]
    apart = [(g["lr"], g["weight_decay"], g["parameters"]) for g in groups if "coord_offset_adapter" in g["example"]]
    assert apart == [(4e-4, 0.03, 96_000), (2e-4, 0.03, 96_000)]
    assert {group["lr"] for group in groups} >= {4e-4, 2e-4, 1e-3}


@pytest.mark.slow
def test_offsets_that_are_switched_off_leave_the_groups_of_before():
    pytest.importorskip("swift")
    from coord_trainer.preview import dry_run

    off = [*OFFSETS, "custom.coord_offset.enabled=false"]
    groups = [
        dry_run(load_run_config(None, [*off, f"training.optimizer={name}"]))["groups"]
        for name in ("multimodal", "multimodal_coord_offset")
    ]
    assert groups[0] == groups[1]
    assert {group["lr"] for group in groups[0]} == {1e-3, 1e-4, 5e-4}


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.parametrize("case", ["recomputed", "masks"])
def test_dry_run_memory_is_within_10_percent_of_a_real_step_part_by_part(case, tmp_path):
    pytest.importorskip("swift")
    benchmark = runpy.run_path(str(BENCHMARK))
    half = [*benchmark["DORA"], "model.dtype=bfloat16", "training.gradient_checkpointing=true"]
    small = ["model.tiny.layers=2", "model.tiny.vision_layers=2"]
    masks = ["data.prompt=" + "all " * 300]  # of padded rows, which each layer keeps
    more = {"recomputed": half, "masks": masks}
    planned, measured = benchmark["compare"]([*benchmark["SHAPES"], *small, *more[case]], tmp_path)
    for part in benchmark["PARTS"]:
        assert planned[part] == pytest.approx(measured[part], rel=0.1), part
    assert measured["activations"] > measured["weights"]
