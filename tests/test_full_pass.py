"""One full pass, annotations to report, in a process that cannot reach any network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from drawn_coco import write_coco
from safetensors.torch import load_file

from coord_eval.cli.main import main as evaluate

ROOT = Path(__file__).parents[1]
# Imported by Python itself at start: every look-up and every connection is refused and written down.
BLOCK = """
import os, socket
def refuse(*words, **more):
    with open(os.environ["NETWORK_LOG"], "a") as log:
        log.write(repr(words) + "\\n")
    raise OSError("the network is blocked in this test")
real = socket.getaddrinfo
def look_up(host, *rest, **more):
    return real(host, *rest, **more) if host in (None, "localhost", "127.0.0.1", "::1") else refuse(host)
socket.getaddrinfo = socket.gethostbyname = look_up
connect = socket.socket.connect
def guarded(self, address):
    local = self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost")
    return connect(self, address) if local else refuse(address)
socket.socket.connect = guarded
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The first run with `--adapter offset`, cut short, on COCO files: a frozen model, LoRA and offsets."""
    folder = tmp_path_factory.mktemp("pass")
    train, heldout = folder / "train.json", folder / "heldout.json"
    write_coco(folder, train, "train", 8)
    write_coco(folder, heldout, "heldout", 6)
    (folder / "block").mkdir()
    (folder / "block" / "sitecustomize.py").write_text(BLOCK)
    log = folder / "network.log"
    environment = os.environ | {"PYTHONPATH": str(folder / "block"), "NETWORK_LOG": str(log)}
    environment.pop("HF_HUB_OFFLINE", None)
    words = [
        f"data.annotations={train}",
        f"data.images={folder}",
        f"data.heldout_annotations={heldout}",
        f"data.heldout_images={folder}",
        "evaluation.decoding={grammar: none}",
        "evaluation.max_new_tokens=64",
        "model.tiny={hidden: 32, heads: 4, ffn: 48, vision_hidden: 32, layers: 2, vision_layers: 2}",
        "training.max_steps=2",
        "training.per_device_train_batch_size=4",
        "training.logging_steps=1",
        "training.eval_steps=1",
        "training.save_steps=2",
        "run.threads=1",
        f"run.dir={folder / 'run'}",
    ]
    config = ROOT / "apps" / "trainer" / "src" / "coord_trainer" / "first-run-offset.yaml"
    command = [sys.executable, str(ROOT / "apps" / "trainer"), "train", "-c", str(config), *words]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run", done, log, heldout


@pytest.mark.slow
def test_no_name_was_looked_up_and_no_connection_opened(finished):
    log = finished[2]
    assert not log.exists(), log.read_text()


@pytest.mark.slow
def test_the_run_folder_holds_what_the_contract_names(finished):
    run, done, *_ = finished
    for name in (
        "config.yaml",
        "manifest.json",
        "metrics.jsonl",
        "predictions.jsonl",
        "evaluation.json",
        "report.html",
    ):
        assert (run / name).stat().st_size > 0, name
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["data"]["train"]["digest"] != manifest["data"]["heldout"]["digest"]
    assert manifest["fingerprint"] and manifest["versions"]["ms-swift"] and manifest["seed"] == 0
    last = done.stdout.strip().splitlines()
    assert str(run / "report.html") in last[-1]
    assert "AP50" in last[-3] and "mean IoU" in last[-3] and "parse" in last[-2]


@pytest.mark.slow
def test_adapter_of_the_run_holds_the_offsets_and_they_have_moved(finished):
    run = finished[0]
    manifest = json.loads((run / "manifest.json").read_text())
    tensors = load_file(run / manifest["checkpoint"] / "adapter_model.safetensors")
    # Not the ids, nor the table that a tied head does not have.
    tensors = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and len(tensor)}
    offsets = {name: tensor for name, tensor in tensors.items() if "coord_offset_adapter" in name}
    assert sum(tensor.numel() for tensor in offsets.values()) == manifest["parameters"]["offsets"] > 0
    assert all(tensor.any() for tensor in offsets.values())
    assert not [name for name in tensors if name.endswith(("embed_tokens.weight", "lm_head.weight"))]
    assert sum(tensor.numel() for tensor in tensors.values()) == manifest["parameters"]["trained"]


@pytest.mark.slow
def test_the_log_names_every_term_for_training_and_evaluation(finished):
    lines = [json.loads(line) for line in (finished[0] / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if "train_total_loss" in line]
    evaluation = [line for line in lines if "eval_total_loss" in line]
    assert [line["step"] for line in train] == [1, 2]
    assert [line["step"] for line in evaluation] == [1, 2]
    diagnostics = ("loss", "soft_ce", "w1", "gate", "coord_vocab_mass", "coord_tokens", "enabled")
    for lines_of, start, prefix in ((train, "train_", ""), (evaluation, "eval_", "eval_")):
        wanted = {f"{start}{name}" for name in ("total_loss", "text_loss", "coord_loss", "coord_ce_loss")}
        wanted |= {f"{prefix}coord_diag/{name}" for name in diagnostics}
        assert all(wanted <= set(line) for line in lines_of)
    events = list((finished[0] / "tensorboard").glob("events.out.tfevents.*"))
    assert events, "TensorBoard's file is missing"


@pytest.mark.slow
def test_the_evaluation_command_alone_says_the_same(finished, tmp_path):
    run, _, _, heldout = finished
    files = ["--ground-truth", str(heldout), "--predictions", str(run / "predictions.jsonl")]
    options = ["--markers", "obj", "--max-objects", "30", "--out", str(tmp_path), "--no-report"]
    assert evaluate(["score", *files, *options]) == 0
    found, written = (json.loads((folder / "evaluation.json").read_text()) for folder in (tmp_path, run))
    assert found == written and written["format"]["answers"] == 6


@pytest.mark.slow
def test_the_answers_come_with_probabilities_for_each_side(finished):
    for line in (finished[0] / "predictions.jsonl").read_text().splitlines():
        record = json.loads(line)
        sides = record["text"].count("<|coord_") - record["text"].count("<|coord_*|>")
        assert len(record["coord_logprobs"]) == len(record["coord_expected"]) == sides
        assert len(record["desc_logprobs"]) == sum(record["desc_token_counts"])
        assert all(value <= 0 for value in record["coord_logprobs"])
        assert all(0 <= value <= 1 for value in record["coord_expected"])
