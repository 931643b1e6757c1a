"""Names in transformers' models: what is asked, what is kept, and what is combined."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers
from torch import nn

from coord_exporter.checkpoint import modules
from coord_exporter.checkpoint.read import SafetensorsFile, StoredCheckpoint, TensorInfo

AUTO = "AutoModelForImageTextToText"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Qwen3VLForConditionalGeneration"], "Qwen3VLForConditionalGeneration"),
        (["Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration"], "Qwen3ForCausalLM"),
        (["OfNextYear", "Qwen3ForCausalLM"], AUTO),
        ([], AUTO),
        (None, AUTO),
    ],
)
def test_class_of_a_model_is_its_first_architecture(names, expected):
    assert modules.model_class({"architectures": names}) is getattr(transformers, expected)


def test_transformers_is_asked_once_for_each_configuration(monkeypatch):
    """A second base of the same family may be tied otherwise, at the top or in a section."""
    asked = []
    monkeypatch.setattr(modules, "_ASKED", {})
    monkeypatch.setattr(modules, "_ask", lambda base: asked.append(base.config) or json.dumps(base.config))
    first = {"model_type": "m", "architectures": ["A"], "text_config": {"tie_word_embeddings": True}}
    others = [first | {"tie_word_embeddings": False}, first | {"text_config": {"tie_word_embeddings": False}}]
    others += [first | {"architectures": ["B"]}, first | {"model_type": "n"}]
    for config in (first, *others, dict(reversed(first.items())), *others):
        found = modules.tables_in_model(StoredCheckpoint(Path(), config, (), None))
        assert json.loads(found) == config
    assert asked == [first, *others]


def test_tensors_that_a_model_combines_keep_their_stored_names(monkeypatch):
    infos = tuple(TensorInfo(name, "F32", (1,), Path(), 0) for name in ("e.0.w", "e.1.w", "x.w", "old.y.w"))
    names = {"e.0.w": "e.w", "e.1.w": "e.w", "old.y.w": "new.y.w"}
    monkeypatch.setattr(modules, "names_in_model", lambda model: lambda name: names.get(name, name))
    files = tuple(SafetensorsFile(Path(), part, {}, b"") for part in (infos[:1], infos[1:]))
    base = StoredCheckpoint(Path(), {}, files, None)
    assert [*modules.named_as_modules(base, SimpleNamespace()).tensors] == ["e.0.w", "e.1.w", "x.w", "new.y.w"]


def test_modules_are_renamed_only_to_those_that_the_model_has(monkeypatch):
    model = nn.ModuleDict({"new": nn.ModuleDict({"a": nn.Linear(1, 1)}), "kept": nn.Linear(1, 1)})
    monkeypatch.setattr(modules, "names_in_model", lambda model: lambda name: name.replace("old", "new"))
    assert modules.renamed_modules(model, ["old.a", "old.gone", "new.a", "kept", "old"]) == {
        "old.a": "new.a",
        "old": "new",
    }
