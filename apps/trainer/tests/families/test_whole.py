"""Every model family, tiny and random, from its base to served answers, through the command lines.

A base without coordinate tokens is expanded, inspected, trained with DoRA or LoRA and offsets on photographs,
asked, merged, asked again as a plain checkpoint, and served.
"""

import json
import os
import shutil
from functools import cache
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tiny_families import build
from tiny_run import read_lines, tiny_config
from transformers import AutoModelForImageTextToText, AutoProcessor

from coord_adapter import load_adapter
from coord_detect.families.registry import FAMILIES

pytest.importorskip("swift")
pytestmark = [pytest.mark.slow, pytest.mark.shared, pytest.mark.drawn(1, "kind")]

APPS = Path(__file__).parents[3]
PROMPT = "Describe all objects in the image with their bounding boxes."
COUNT, STEPS, TOKENS = 2, 3, 12
FULL = bool(os.environ.get("COORDEXP_FULL"))
WITH_LORA = {"gemma3", "qwen2_vl"}
"""Families that train with LoRA; the others train with DoRA."""
TRAINED = (
    "custom.coord_soft_ce_w1.enabled=true",
    "custom.coord_offset.enabled=true",
    "training.target_modules=[all-linear]",
    "training.per_device_train_batch_size=2",
    "training.gradient_accumulation_steps=1",
    "training.learning_rate=0.02",
    "training.lr_scheduler_type=constant",
    "training.logging_steps=1",
    f"training.max_steps={STEPS}",
    f"training.save_steps={STEPS}",
    "evaluation.images=train",
    f"evaluation.max_new_tokens={TOKENS}",
    "evaluation.decoding={grammar: none}",
    "run.threads=1",
    "data.markers=obj",
)


@pytest.fixture(scope="module")
def photographs(shared_dir, tmp_path_factory):
    """Annotations of a few photographs, and the folder of these images alone."""
    folder = tmp_path_factory.mktemp("photographs")
    document = json.loads((shared_dir / "coco_permissive33" / "instances.json").read_text())
    document["images"] = document["images"][:COUNT]
    kept = {image["id"] for image in document["images"]}
    document["annotations"] = [row for row in document["annotations"] if row["image_id"] in kept]
    (folder / "instances.json").write_text(json.dumps(document))
    (folder / "images").mkdir()
    for image in document["images"]:
        shutil.copy(shared_dir / "coco_permissive33" / "images" / image["file_name"], folder / "images")
    return folder


@pytest.fixture(scope="module")
def done(forked):
    """Run a command of an app in a fork; returns what it printed."""

    def call(app, *words):
        finished = forked(APPS / app, *words, OMP_NUM_THREADS="1")
        assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
        return finished.stdout + finished.stderr

    return call


@pytest.fixture(scope="module")
def whole(photographs, done, tmp_path_factory):
    """A function that takes a family from a base without coordinate tokens to an export: the folder, what was told."""
    from coord_trainer.model.tiny import train_tokenizer

    data = (f"data.annotations={photographs / 'instances.json'}", f"data.images={photographs / 'images'}")
    categories = json.loads((photographs / "instances.json").read_text())["categories"]
    tokenizer = train_tokenizer([PROMPT, *(row["name"] for row in categories)], coordinates=False)

    @cache
    def of(kind):
        folder = tmp_path_factory.mktemp(kind)
        build(kind, tokenizer, tiny_config().model.tiny, folder / "bare")
        told = {"expanded": done("exporter", "expand-vocab", folder / "bare", folder / "base", "--markers")}
        tuner = f"training.use_dora={str(kind not in WITH_LORA).lower()}"
        words = (*TRAINED, tuner, *data, f"model.path={folder / 'base'}")
        told["inspected"] = done(
            "trainer", "inspect", photographs / "instances.json", "--images", photographs / "images",
            "--model", folder / "base", "--out", folder / "inspected", "data.markers=obj", TRAINED[0],
        )  # fmt: skip
        done("trainer", "train", *words, f"run.dir={folder / 'run'}", "evaluation.images=none")
        adapter = adapter_of(folder / "run")
        told["merged"] = done("exporter", "merge", folder / "base", adapter, folder / "merged", "--verify")
        ask = (photographs / "images", "--no-draw", "--out")
        free = (f"evaluation.max_new_tokens={TOKENS}", "evaluation.decoding={grammar: none}")
        done("trainer", "predict", adapter, *ask, folder / "adapter", *free)
        done("trainer", "predict", folder / "merged", *ask, folder / "export", *free)
        return folder, told

    return of


def texts(folder):
    return [json.loads(line)["text"] for line in (folder / "predictions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", FAMILIES)
def test_family_from_base_to_export(kind, whole, photographs):
    folder, told = whole(kind)
    # Before training: rows are added, and the page of what the model receives is made.
    assert "1,003 tokens added" in told["expanded"]  # the coordinates, the wildcard and two markers
    page = (folder / "inspected" / "inspect.html").read_text()
    assert f"{FAMILIES[kind].image_token.replace('<', '&lt;').replace('>', '&gt;')} x " in page
    losses = losses_of(folder / "run")
    assert sorted(losses) == list(range(1, STEPS + 1)) and losses[STEPS] < losses[1]
    weights = load_file(adapter_of(folder / "run") / "adapter_model.safetensors")
    assert any("magnitude" in name for name in weights) == (kind not in WITH_LORA)
    # Adapter and export generate the same tokens, in this product and in plain transformers.
    processor = AutoProcessor.from_pretrained(folder / "merged")
    own = own_tokens(adapter_of(folder / "run"), photographs)
    asked = plain_prompts(processor, photographs)
    assert [prompt for prompt, _ in own] == [prompt["input_ids"][0].tolist() for prompt in asked]
    answers = [answer for _, answer in own]
    base = AutoModelForImageTextToText.from_pretrained(folder / "base", dtype=torch.float32)
    export = AutoModelForImageTextToText.from_pretrained(folder / "merged", dtype=torch.float32)
    assert answers == plain_tokens(load_adapter(base, adapter_of(folder / "run")), processor, asked)
    assert answers == plain_tokens(export, processor, asked)
    written = [processor.tokenizer.decode(ids) for ids in answers]
    assert len(written) == COUNT and any(written)
    assert texts(folder / "export") == texts(folder / "adapter") == written


def adapter_of(run):
    return run / "checkpoints" / f"checkpoint-{STEPS}"


def losses_of(run):
    lines = [line for line in read_lines(run) if "train_total_loss" in line]
    return {line["step"]: line["train_total_loss"] for line in lines}


def opened_images(photographs):
    return [Image.open(path).convert("RGB") for path in sorted((photographs / "images").iterdir())]


def own_tokens(adapter, photographs):
    """Prompt and answer of each image in ids, as this product's generation makes them."""
    from coord_detect.answers.generate import answer_images
    from coord_detect.model.checkpoint import open_checkpoint

    config = tiny_config(data={"markers": "obj"}, evaluation={"decoding": {"grammar": "none"}})
    checkpoint, found = open_checkpoint(adapter, config), []
    generate = checkpoint.model.generate

    def recorded(**inputs):
        ids, length = generate(**inputs), inputs["input_ids"].shape[1]
        found.append((ids[0, :length].tolist(), until_end(ids[0, length:].tolist(), checkpoint.processor.tokenizer)))
        return ids

    checkpoint.model.generate = recorded
    for image in opened_images(photographs):
        answer_images(checkpoint, [image], config.data, config.evaluation.decoding[0], TOKENS)
    return found


def until_end(ids, tokenizer):
    ends = {tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids([row.answer_end for row in FAMILIES.values()])}
    return ids[: next((place for place, token in enumerate(ids) if token in ends), len(ids))]


def plain_prompts(processor, photographs):
    """The prompts as transformers' own documentation makes them: no line of this product."""
    settings = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}

    def asked(image):
        content = [{"type": "image", "image": image}, {"type": "text", "text": PROMPT}]
        return processor.apply_chat_template([{"role": "user", "content": content}], enable_thinking=False, **settings)

    return [asked(image) for image in opened_images(photographs)]


def plain_tokens(model, processor, prompts):
    """The answers of a model in ids, as transformers generates them."""
    answers = []
    for inputs in prompts:
        ids = model.eval().generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        answers.append(until_end(ids[0, inputs["input_ids"].shape[1] :].tolist(), processor.tokenizer))
    return answers


@pytest.mark.skipif(not FULL, reason="families are served one by one with COORDEXP_FULL=1")
@pytest.mark.parametrize("kind", FAMILIES)
def test_export_is_served(kind, whole, photographs, done):
    pytest.importorskip("openai")
    from deployed import deployed

    folder, _ = whole(kind)
    with deployed(folder / "merged", folder / "server.log", FAMILIES[kind].entry) as url:
        done(
            "trainer", "predict", folder / "merged", photographs / "images", "--no-draw", "--out", folder / "served",
            f"evaluation.max_new_tokens={TOKENS}", "evaluation.decoding={grammar: none}",
            "--endpoint", url, "--model", "tiny",
        )  # fmt: skip
    assert texts(folder / "served") == texts(folder / "export")
