"""A loss that is not finite, named by term, step and images."""

import json
import os
import signal

import pytest
import torch
from tiny_run import read_lines

from coord_codec import CoordVocab, RunError
from coord_losses import CoordObjective, LossTerm, ObjectiveConfig, TermError, register_term
from coord_losses.terms import registry
from coord_trainer.training.faults import (
    NonFiniteLoss,
    explain_worker_failure,
    loss_without_gradient,
    name_failing_term,
)


def output_with(value):
    objective = CoordObjective(ObjectiveConfig.soft(), CoordVocab(10))
    output = objective(torch.zeros(2, 1010), torch.tensor([3, 12]))
    output.terms["gate"] = LossTerm(torch.tensor(value), output.terms["gate"].count)
    return output, output.total()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_loss_stops_with_term_step_and_images(value):
    output, loss = output_with(value)
    with pytest.raises(RunError, match=rf"diverged at step 7: the loss term gate is {value} \(images a\.jpg, 12\)"):
        NonFiniteLoss("stop").leaves_out(output, loss, 7, ["a.jpg", "12"])
    assert not NonFiniteLoss("stop").leaves_out(*output_with(1.0), 7, ["a.jpg"])


def test_non_finite_loss_is_left_out_and_listed(tmp_path, capsys):
    policy = NonFiniteLoss("skip", tmp_path / "problems.jsonl")
    for step in range(1, 13):
        assert policy.leaves_out(*output_with(float("nan")), step, [f"{step}.jpg"])
    assert policy.skipped == 12
    lines = [json.loads(line) for line in (tmp_path / "problems.jsonl").read_text().splitlines()]
    assert lines[11] == {
        "set": "train",
        "where": "12.jpg",
        "field": "loss",
        "message": "gate is nan at step 12: left out",
    }
    assert capsys.readouterr().out.count("left out") == 10  # a console is no list


def test_loss_without_gradient_reaches_every_trained_parameter():
    trained, frozen = torch.nn.Parameter(torch.full((3,), 2.0)), torch.nn.Parameter(torch.ones(2), requires_grad=False)
    loss_without_gradient([trained, frozen]).backward()
    assert trained.grad.tolist() == [0, 0, 0] and frozen.grad is None


def test_failing_term_is_a_line_that_names_term_and_options(caplog, monkeypatch):
    def inverse(inputs, of=1):
        return of / 0 + inputs.gate_C

    monkeypatch.setattr(registry, "_TERMS", dict(registry._TERMS))
    register_term("inverse", inverse, needs="gate")
    config = ObjectiveConfig(extra_weights={"inverse": 1.0}, term_options={"inverse": {"of": 2}})
    said = r"^term 'inverse' with options \{'of': 2\} raises ZeroDivisionError: .*coord_objective\.term_options"
    with pytest.raises(RunError, match=said) as raised, name_failing_term():
        CoordObjective(config, CoordVocab(10))(torch.zeros(2, 1010), torch.tensor([3, 12]))
    assert isinstance(raised.value.__cause__, TermError)
    assert "in inverse" in caplog.text  # the traceback


class Failing(torch.utils.data.Dataset):
    """A data set whose file vanishes, or whose process is killed."""

    def __init__(self, killed):
        self.killed = killed

    def __len__(self):
        return 1

    def __getitem__(self, index):
        if self.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RunError("gone.jpg: became unreadable during the run")


@pytest.mark.parametrize(
    ("killed", "told"),
    [
        (False, r"^gone\.jpg: became unreadable during the run$"),
        (True, r"^a process that encodes images ended \(DataLoader worker .*\): memory .*dataloader_num_workers"),
    ],
)
def test_failure_in_a_process_that_encodes_images_is_one_line(killed, told):
    loader = torch.utils.data.DataLoader(Failing(killed), num_workers=1)
    with pytest.raises(RunError, match=told) as raised, explain_worker_failure():
        list(loader)
    assert "\n" not in str(raised.value)
    with pytest.raises(RuntimeError, match="another"), explain_worker_failure():
        raise RuntimeError("another")


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize("spoils", ["loss", "gradient"])
def test_trainer_stops_at_a_loss_that_is_not_finite_or_goes_on_without_it(
    policy, spoils, run, tiny_model, tmp_path, monkeypatch
):
    pytest.importorskip("swift")
    from tiny_run import tiny_config

    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.train import train_model
    from coord_trainer.training.head import RowHead

    training = {"max_steps": 2, "save_steps": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    config = tiny_config(run={"on_nan": policy}, training=training, evaluation={"images": "none"})
    train, _ = draw_sets(config, tmp_path / "data")
    total, seen = RowHead.total, []

    def spoilt(rows, output):
        seen.append(output)
        if spoils == "gradient":
            loss = total(rows, output)
            if len(seen) == 3:  # in the second step, after which a checkpoint is due
                loss.register_hook(lambda gradient: gradient * float("nan"))
            return loss
        if len(seen) == 2:  # the second micro-batch of the first step: images 3 and 4
            term = output.terms["soft_ce"]
            output.terms["soft_ce"] = LossTerm(term.sum * float("nan"), term.count)
        return total(rows, output)

    monkeypatch.setattr(RowHead, "total", spoilt)
    names = ", ".join(str(i.image_id if i.image_id is not None else i.image) for i in train.instances[2:4])
    if policy == "stop":
        what = {"loss": "1: the loss term soft_ce is nan", "gradient": "2: the norm of the gradient is nan"}[spoils]
        (tmp_path / "run.yaml").write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
        code, told, _ = run("train", "--config", "run.yaml", f"run.dir={tmp_path / 'stopped'}")
        (line,) = [line for line in told.splitlines() if f"diverged at step {what}" in line]
        assert (code, f"(images {names})" in line) == (1, spoils == "loss")
        assert "Traceback" not in told and not list(tmp_path.glob("**/checkpoint-*"))
        return
    train_model(config, tmp_path, str(tiny_model), train, None)
    assert len(seen) == 4
    losses = [line["train_total_loss"] for line in read_lines(tmp_path) if "train_total_loss" in line]
    assert len(losses) == 2 and all(0 < loss < 100 for loss in losses)
    problem = json.loads((tmp_path / "problems.jsonl").read_text())
    assert (problem["field"], problem["where"]) == (spoils, names if spoils == "loss" else "all")
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "checkpoints" / "checkpoint-2" / "model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in weights.values())
