"""The global batch on one rank and on two, accumulated or not: the same numbers and the same weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("swift")
HERE = Path(__file__).parent


def torchrun(*words, ranks=2, timeout=300, **environment):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
    command += ["--master_port", "0", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]
    given = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE), "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run(
        [*command, *map(str, words)],
        env=os.environ | given | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def cuts():
    sys.path.insert(0, str(HERE))
    import trainer_cuts

    yield trainer_cuts
    sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def two_ranks(cuts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    base = cuts.build_base(folder)
    done = torchrun(HERE / "trainer_cuts.py", base, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, base


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mixed", "b"])
def test_ranks_and_accumulation_change_nothing(cuts, two_ranks, objective, monkeypatch, tmp_path):
    from safetensors.torch import load_file

    folder, base = two_ranks
    monkeypatch.setattr(cuts.training, "sample_set", cuts.with_an_unlearnt_sample(cuts.training.sample_set))
    whole = cuts.settings(objective, cuts.WHOLE)
    checkpoint, expected = cuts.run(whole, base, tmp_path)
    weights = load_file(checkpoint / "model.safetensors")
    start = load_file(Path(base) / "model.safetensors")
    moved = max((weights[name] - start[name]).abs().max() for name in weights)
    assert moved > 1e-2  # so that the tolerance below means something
    assert {(1, "train_total_loss"), (2, "train_total_loss"), (2, "eval_total_loss")} <= set(expected)
    for name in cuts.CUTS:
        run = folder / f"{objective}-{name}"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        found = {(line["step"], key): value for line in lines for key, value in line.items()}
        timed = ("runtime", "per_second", "memory", "speed", "elapsed", "remaining", "total_flos")
        for key, value in expected.items():
            if isinstance(value, float) and not any(word in key[1] for word in timed):
                assert found[key] == pytest.approx(value, rel=2e-5, abs=1e-6), (name, key)
        for other, value in load_file(run / "checkpoints" / "checkpoint-2" / "model.safetensors").items():
            torch.testing.assert_close(value, weights[other], rtol=0, atol=1e-5, msg=f"{name} {other}")


FAILING = """
import os, sys
from coord_trainer import cli, training
if os.environ["RANK"] == "1":
    def fail(*_):
        raise RuntimeError("the second rank breaks")
    training.sample_set = fail
sys.argv = ["coord-trainer", "train", *sys.argv[1:]]
cli.main()
"""
SMALL = [
    "custom.coord_soft_ce_w1.enabled=true",
    "data.shapes.train=4",
    "data.shapes.heldout=2",
    "training.max_steps=1",
    "training.report_to=[]",
    "run.threads=1",
]


@pytest.mark.slow
def test_when_one_rank_fails_all_stop(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    done = torchrun(tmp_path / "failing.py", *SMALL, f"run.dir={tmp_path / 'run'}", timeout=180)
    assert done.returncode != 0
    assert "the second rank breaks" in done.stderr


@pytest.mark.slow
def test_a_mistake_is_told_once_and_all_stop(tmp_path):
    words = [*SMALL, "data.annotations=gone.json", f"data.images={tmp_path}", "evaluation.pictures=train"]
    done = torchrun(HERE.parent, "train", *words, timeout=180)
    assert done.returncode != 0
    assert done.stderr.count("error: gone.json") == 1


@pytest.mark.slow
def test_the_command_line_on_two_ranks_makes_one_run(tmp_path):
    run = tmp_path / "run"
    done = torchrun(HERE.parent, "train", *SMALL, f"run.dir={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("report:") == 1 and done.stdout.count("run folder") == 1
    assert json.loads((run / "manifest.json").read_text())["status"] == "finished"
    assert len((run / "predictions.jsonl").read_text().splitlines()) == 2
    assert len([p for p in tmp_path.iterdir() if p.name.startswith("run")]) == 1
