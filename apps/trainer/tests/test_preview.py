"""`train --dry-run`: what it prints, and its memory against a real step's."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from PIL import Image

from coord_codec import InputError
from coord_trainer import preview
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


def test_bytes_of_kept_samples_are_those_of_all_of_them_and_none_beside_a_gpu(monkeypatch):
    encoded = [{"a": torch.zeros(5, dtype=torch.float64), "b": [1, 2]}, {"a": torch.zeros(3, dtype=torch.float64)}]
    config, asked = load_run_config(None, OFFSETS), []

    class Kept(list):
        keeps = staticmethod(lambda total: asked.append(total) or True)

    monkeypatch.setattr(preview.torch.cuda, "is_available", lambda: False)
    assert preview._kept_bytes(config, Kept(range(3)), encoded) == 8 * (5 + 3) * 8 // 2  # 8 generated images
    given = config.model_copy(update={"data": config.data.model_copy(update={"annotations": Path("a.json")})})
    assert preview._kept_bytes(given, Kept(range(3)), encoded) == 8 * (5 + 3) * 3 // 2 and asked == [8, 3]
    monkeypatch.setattr(Kept, "keeps", staticmethod(lambda total: False))
    assert preview._kept_bytes(config, Kept(), encoded) == 0
    monkeypatch.setattr(Kept, "keeps", staticmethod(lambda total: True))
    monkeypatch.setattr(preview.torch.cuda, "is_available", lambda: True)
    assert preview._kept_bytes(config, Kept(), encoded) == 0


def test_groups_of_the_optimizer_are_listed_without_empty_ones():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 3), "b": torch.nn.Linear(3, 1, bias=False)})
    rows = [
        {"params": [*model["a"].parameters()], "lr": 0.5, "weight_decay": 0.25},
        {"params": [], "lr": 1.0},
        {"params": [*model["b"].parameters()], "lr": 0.125, "weight_decay": 0.0},
    ]
    assert preview._groups(model, torch.optim.SGD(rows, lr=9.0)) == [
        {"lr": 0.5, "weight_decay": 0.25, "tensors": 2, "parameters": 9, "example": "a.weight"},
        {"lr": 0.125, "weight_decay": 0.0, "tensors": 1, "parameters": 3, "example": "b.weight"},
    ]


def test_source_with_the_most_objects_in_an_image_is_the_one_that_is_simulated(tmp_path, capsys):
    box = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
    counts = {"few": (2, 2, 2, 2), "many": (0, 4, 1), "none": (0,)}
    for name, numbers in counts.items():
        for number in range(len(numbers)):
            Image.new("RGB", (8, 8)).save(tmp_path / f"{name}{number}.png")
        lines = [{"image": f"{name}{n}.png", "objects": [box] * count} for n, count in enumerate(numbers)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def longest(*names):
        rows = ",".join(f"{{name: {name}, annotations: {tmp_path / name}.jsonl, weight: 2}}" for name in names)
        words = [*OFFSETS[:1], "evaluation.images=none", f"data.sources=[{rows}]"]
        mixture, chosen = preview._data(load_run_config(None, words), tmp_path)
        assert [source.name for source in mixture.sources] == list(names)
        return [source.name for source in chosen.sources], capsys.readouterr().out

    assert longest("few", "many")[0] == ["many"] == longest("many", "few")[0]
    found, told = longest("none", "few")
    assert found == ["few"] and "of 2 sources" in told and "train: 4 images" in told
    found, told = longest("none")
    assert found == ["none"] and "sources" not in told


def test_generated_images_are_drawn_as_many_as_are_encoded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(preview, "_ENCODED", 3)
    mixture, chosen = preview._data(load_run_config(None, OFFSETS), tmp_path)
    assert mixture is chosen and len(mixture) == 3 and "8 images (3 of them encoded)" in capsys.readouterr().out


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
