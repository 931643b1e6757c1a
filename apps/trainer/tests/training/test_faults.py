"""A loss that is not finite, named by term, step and images."""

import json
import os
import signal

import pytest
import torch

from coord_codec import CoordVocab, RunError
from coord_codec.registry import Registry
from coord_losses import CoordObjective, LossTerm, ObjectiveConfig, TermError, register_term
from coord_losses.terms import registry
from coord_trainer.training.faults import explain_worker_failure, name_failing_term, refuse_non_finite_loss


def output_with(value):
    objective = CoordObjective(ObjectiveConfig.soft(), CoordVocab(10))
    output = objective(torch.zeros(2, 1010), torch.tensor([3, 12]))
    output.terms["gate"] = LossTerm(torch.tensor(value), output.terms["gate"].count)
    return output, output.total()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_loss_stops_with_term_step_and_images(value):
    output, loss = output_with(value)
    with pytest.raises(RunError, match=rf"diverged at step 7: the loss term gate is {value} \(images a\.jpg, 12\)"):
        refuse_non_finite_loss(output, loss, 7, ["a.jpg", "12"])
    refuse_non_finite_loss(*output_with(1.0), 7, ["a.jpg"])


def test_failing_term_is_a_line_that_names_term_and_options(caplog, monkeypatch):
    def inverse(inputs, of=1):
        return of / 0 + inputs.gate_C

    monkeypatch.setattr(registry, "_TERMS", Registry("term", registry._TERMS.items()))
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
    for other in (
        "another",
        "Caught ValueError in DataLoader worker process 0.",
    ):  # of a plugin's code, with its traceback
        with pytest.raises(RuntimeError, match=other), explain_worker_failure():
            raise RuntimeError(other)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("spoils", ["loss", "gradient"])
def test_trainer_stops_at_a_loss_that_is_not_finite(spoils, run, tmp_path, monkeypatch):
    pytest.importorskip("swift")
    from tiny_run import tiny_config

    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.training.head import RowHead

    training = {"max_steps": 2, "save_steps": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    config = tiny_config(training=training, evaluation={"images": "none"})
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
    what = {"loss": "1: the loss term soft_ce is nan", "gradient": "2: the norm of the gradient is nan"}[spoils]
    (tmp_path / "run.yaml").write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
    code, told, _ = run("train", "--config", "run.yaml", f"run.dir={tmp_path / 'stopped'}")
    (line,) = [line for line in told.splitlines() if f"diverged at step {what}" in line]
    assert (code, f"(images {names})" in line) == (1, spoils == "loss")
    assert "Traceback" not in told and not list(tmp_path.glob("**/checkpoint-*"))
