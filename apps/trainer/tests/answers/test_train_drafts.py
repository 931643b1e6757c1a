"""Drafts: trained on a frozen model as they are decoded, kept beside it, used by `--speed`."""

import json

import pytest
import torch
from tiny_run import tiny_config

from coord_adapter import DRAFTS_FILE, read_drafts
from coord_trainer.answers.speed.passes import Passes
from coord_trainer.answers.speed.train_drafts import _Drafts, train_drafts
from coord_trainer.data.shapes import draw_sets
from coord_trainer.model.checkpoint import open_checkpoint
from coord_trainer.model.prompt import prompt_tokens


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    config = tiny_config()
    return draw_sets(config, tmp_path_factory.mktemp("data"))[0]


@pytest.mark.parametrize("data", [{"markers": "obj"}, {"style": "json"}])
def test_drafts_pass_in_training_as_they_do_in_decoding(data, tiny_model, drawn):
    config = tiny_config(data=data)
    checkpoint = open_checkpoint(tiny_model, config)
    drafts = _Drafts(checkpoint, config, drawn)
    rows = drafts.initial(0)
    group = [0, 1, 2]
    with torch.no_grad():
        trained, targets, draft = drafts.forward(drafts.batch(group), rows)
    assert set(draft.tolist()) == {0, 1, 2}
    decoded, true = [], []
    tokenizer, vocab = checkpoint.processor.tokenizer, checkpoint.vocab
    bins = slice(vocab.first_id, vocab.first_id + len(vocab.ids))
    for index in group:
        text = drafts._writer.text(drawn.instances[index])
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        coordinates = [at for at, token in enumerate(ids) if token in vocab.ids]
        inputs = prompt_tokens(checkpoint.processor, None, [drawn.image(index)], config.data.prompt)
        with torch.inference_mode():
            passes = Passes(checkpoint.model, 0)
            passes.begin(inputs, ids[:1], 0)
            start = passes.prompt_length
            for first in coordinates[::4]:
                logits = passes([start], [ids[:first]], rows, drafts.forced.stride)[0]
                decoded.append(logits[first : first + 3, bins])
            logits = passes([start], [ids])[0]
        true += [logits[at - 1, bins].softmax(0) for n, at in enumerate(coordinates) if n % 4]
    torch.testing.assert_close(trained, torch.cat(decoded), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(targets, torch.stack(true), rtol=1e-3, atol=1e-6)


def test_training_changes_the_drafts_and_nothing_else(tiny_model, drawn):
    config = tiny_config()
    checkpoint = open_checkpoint(tiny_model, config)
    before = {name: value.clone() for name, value in checkpoint.model.state_dict().items()}
    asked = {"steps": 6, "batch": 2}
    rows, agreement = train_drafts(checkpoint, config, drawn, **asked, seed=1)
    assert rows.shape == (3, 32) and len(agreement.equal) == 3 and agreement.coordinates % 3 == 0
    assert not torch.equal(rows, _Drafts(checkpoint, config, drawn).initial(1))
    assert torch.equal(rows, train_drafts(checkpoint, config, drawn, **asked, seed=1)[0])
    after = checkpoint.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.slow
def test_command_trains_drafts_that_predict_finds(run, tiny_model, drawn, tmp_path):
    from shutil import copytree

    model = copytree(tiny_model, tmp_path / "model")
    folder = tmp_path / "images"
    folder.mkdir()
    lines = []
    for index, instance in enumerate(drawn.instances):
        drawn.image(index).save(folder / f"{index}.png")
        record = instance.model_dump(mode="json", include={"objects", "width", "height"}) | {"image": f"{index}.png"}
        lines.append(json.dumps(record))
    (folder / "a.jsonl").write_text("\n".join(lines))
    code, err, _ = run("predict", model, folder, "--out", "o", "--speed", "fast", "data.markers=obj")
    assert code == 2 and "evaluation.speed is fast but the model has no draft embeddings" in err
    asked = ("slots", model, folder / "a.jsonl", "data.markers=obj", "--steps", 2, "--batch", 2)
    code, err, out = run(*asked)
    assert code == 0, err
    assert "96 parameters" in out and read_drafts(model).rows.shape == (3, 32)
    code, err, _ = run(*asked)
    assert code == 2 and DRAFTS_FILE in err and "--force" in err
    words = ("data.markers=obj", "evaluation.max_new_tokens=24", "evaluation.decoding.grammar=markers")
    texts = {}
    for speed in ("plain", "exact", "fast"):
        code, err, _ = run("predict", model, folder, "--out", speed, "--speed", speed, "--no-draw", *words)
        assert code == 0, err
        lines = (tmp_path / speed / "predictions.jsonl").read_text().splitlines()
        texts[speed] = [json.loads(line)["text"] for line in lines]
    assert texts["exact"] == texts["plain"] and len(texts["fast"]) == len(texts["plain"])
    for speed, other in (("plain", "exact"), ("exact", "fast")):  # only the answers of fast are others
        code, err, _ = run("predict", model, folder, "--out", speed, "--speed", other, "--no-draw", *words)
        assert code == (2 if other == "fast" else 0)
        assert ("made with speed 'plain', now it is 'fast, drafts" in err) == (other == "fast")
