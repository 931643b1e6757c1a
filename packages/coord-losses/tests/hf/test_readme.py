"""The recipes of the README run as they stand, and their gradients are those of one large batch."""

import re
from pathlib import Path

import pytest
import torch

from coord_losses import CoordObjective, ObjectiveConfig, supervised_rows

pytest.importorskip("transformers", reason="recipes for its Trainer")
pytest.importorskip("accelerate", reason="a recipe for accelerate")


@pytest.mark.slow
def test_recipes_of_the_readme_run_and_scale_gradients(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    base, _fused, _terms, plain, trainer, accelerate, _lightning = re.findall(
        r"```python[^\n]*\n(.*?)```", readme, re.DOTALL
    )
    names = {}
    exec(base, names)
    exec(plain.replace("optimizer.step()", "plain = model"), names)
    assert_gradients(names, names["plain"], names["plain"])
    exec(trainer, names)
    assert "box" in capsys.readouterr().out
    names["model"].zero_grad()
    exec(accelerate.replace("optimizer.step()", ""), names)
    assert_gradients(names, lambda ids: names["model"](input_ids=ids).logits, names["model"])


def test_recipe_for_lightning_scales_gradients(monkeypatch, tmp_path):
    pytest.importorskip("lightning", reason="a recipe for it")
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    base, _fused, _terms, plain, trainer, _, recipe = re.findall(r"```python[^\n]*\n(.*?)```", readme, re.DOTALL)
    names = {}
    for block in (base, plain, trainer.replace("trainer.train()\n", "").split("print(")[0]):
        exec(block, names)
    exec(recipe.replace("optimizer.step()", ""), names)
    assert_gradients(names, lambda ids: names["model"](input_ids=ids).logits, names["model"])


def assert_gradients(names, logits_of, model):
    """The sums of all micro-batches divided by the counts of all."""
    objective = CoordObjective(ObjectiveConfig.soft(box_weight=1.0), names["vocab"])
    outputs = [objective(*supervised_rows(logits_of(ids), labels), objects) for ids, labels, objects in names["step"]]
    counts = {key: sum(output.counts[key] for output in outputs) for key in outputs[0].counts}
    expected = torch.autograd.grad(
        sum(output.total(counts) for output in outputs), list(model.parameters()), allow_unused=True
    )
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
