"""Runs the guide docs/guides/gpu.md with the layer sizes of a real Qwen3-VL and random weights.

    uv run python benchmarks/real_geometry.py instances.json images --out runs/real-geometry
    uv run python benchmarks/real_geometry.py instances.json images --out runs/small --hidden 64 --layers 1 --steps 4

Each step is a command of the guide in a process of its own, whose seconds and peak resident memory are printed:
expand-vocab, inspect, memorise (DoRA on every linear layer, offsets; interrupted by SIGTERM halfway, then resumed),
merge, plain transformers, `swift deploy`, predict through the server, score. Qwen's own tokenizer comes from a file in
dashscope, a requirement of ms-swift. Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parents[1]
TRAINER, EXPORTER = ([sys.executable, str(ROOT / "apps" / name)] for name in ("trainer", "exporter"))
PLUGIN = ROOT / "apps/trainer/src/coord_trainer/swift/serving.py"
QWEN3_VL_2B = {"hidden": 2048, "intermediate": 6144, "heads": 16, "kv_heads": 8, "head_dim": 128}
START_SECONDS = 900
MAKE_BASE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from tiny_checkpoint import make_processor, make_qwen_tokenizer
from transformers import Qwen2Tokenizer, Qwen3VLConfig, Qwen3VLForConditionalGeneration
folder, sizes = sys.argv[2], json.loads(sys.argv[3])
fast, token_id = make_qwen_tokenizer(), None
tokenizer = Qwen2Tokenizer(tokenizer_object=fast._tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
token_id = tokenizer.convert_tokens_to_ids
section = sizes["head_dim"] // 2
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
config = Qwen3VLConfig(
    text_config=dict(
        vocab_size=151_936, hidden_size=sizes["hidden"], intermediate_size=sizes["intermediate"],
        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"], num_key_value_heads=sizes["kv_heads"],
        head_dim=sizes["head_dim"], max_position_embeddings=4096, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_interleaved=True,
                             mrope_section=[section - 2 * (section * 5 // 16), section * 5 // 16, section * 5 // 16]),
    ),
    vision_config=dict(
        depth=sizes["layers"], hidden_size=sizes["hidden"] // 2, intermediate_size=sizes["hidden"] * 2,
        num_heads=sizes["heads"], out_hidden_size=sizes["hidden"], patch_size=16,
        num_position_embeddings=2304, deepstack_visual_indexes=[0],
    ),
    tie_word_embeddings=True,
    image_token_id=token_id("<|image_pad|>"), video_token_id=token_id("<|video_pad|>"),
    vision_start_token_id=token_id("<|vision_start|>"), vision_end_token_id=token_id("<|vision_end|>"),
)
model = Qwen3VLForConditionalGeneration(config)
model.generation_config.eos_token_id = token_id(["<|im_end|>", "<|endoftext|>"])  # as Qwen's own checkpoints have it
model.generation_config.pad_token_id = token_id("<|endoftext|>")
model.save_pretrained(folder)
processor = make_processor(tokenizer)
processor.save_pretrained(folder)
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters, {len(tokenizer):,} tokens")
"""
PLAIN = """
import json, sys, torch
from PIL import Image, ImageOps
from transformers import AutoModelForImageTextToText, AutoProcessor
folder, image, prompt = sys.argv[1:4]
model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
processor = AutoProcessor.from_pretrained(folder)
parts = [{"type": "image"}, {"type": "text", "text": prompt}]
text = processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True)
upright = ImageOps.exif_transpose(Image.open(image)).convert("RGB")
inputs = processor(text=[text], images=[upright], return_tensors="pt")
ids = model.generate(**inputs, do_sample=False, max_new_tokens=int(sys.argv[4]))[0, inputs["input_ids"].shape[1]:]
print(json.dumps(processor.tokenizer.decode(ids).replace("<|im_end|>", "")))
"""


class StepRunner:
    """Runs commands as steps and records the seconds, peak resident megabytes and last output line of each."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.rows: list[tuple[str, float, float, str]] = []

    def run(self, name: str, command: Sequence[object], *, stop_at: str = "", exit_code: int = 0) -> str:
        """Run a command and return its output; with `stop_at`, send SIGTERM once its output contains that text."""
        log = self.out / f"{len(self.rows) + 1:02d}-{name.replace(' ', '-')}.log"
        start = time.monotonic()
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with log.open("w") as file:
            process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=file, env=environment)
            ended = os.WEXITED | os.WNOHANG | os.WNOWAIT  # looks without reaping: wait4 below asks for the memory
            while stop_at and not os.waitid(os.P_PID, process.pid, ended):
                if stop_at in log.read_text(errors="replace"):
                    process.send_signal(signal.SIGTERM)
                    break
                time.sleep(0.2)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output = log.read_text(errors="replace")
        if process.returncode != exit_code:
            raise SystemExit(f"{name}: exit {process.returncode}, expected {exit_code}\n{output[-3000:]}")
        last = output.replace("\r", "\n").strip().rsplit("\n", 1)[-1]
        self.add(name, time.monotonic() - start, used.ru_maxrss / 1024, last)
        return output

    def add(self, name: str, seconds: float, megabytes: float, last: str) -> None:
        """Add a finished step and print its row."""
        self.rows.append((name, seconds, megabytes, last))
        print(f"| {name} | {seconds:.0f} | {megabytes:,.0f} | {last[:90]} |", flush=True)


@contextmanager
def served(model: Path, log: Path) -> Iterator[str]:
    """Serve `model` with ms-swift on the loopback; yields the URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--model", model, "--model_type", "qwen3_vl_coord", "--external_plugins", PLUGIN, "--port", port]
    words += ["--infer_backend", "transformers", "--torch_dtype", "float32", "--max_logprobs", "20"]
    words += ["--host", "127.0.0.1", "--served_model_name", "boxes"]
    with log.open("w") as file:
        command = [sys.executable, "-m", "swift.cli.main", "deploy", *map(str, words)]
        environment = os.environ | {"no_proxy": "127.0.0.1"}
        server = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    url, until = f"http://127.0.0.1:{port}/v1", time.monotonic() + START_SECONDS
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/models", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"swift deploy did not start\n{log.read_text()[-3000:]}") from None
                time.sleep(0.5)
        yield url
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def main(
    annotations: Annotated[Path, typer.Argument(help="Annotations in any format that the trainer reads.")],
    images: Annotated[Path, typer.Argument(help="Folder of the images.")],
    out: Annotated[Path, typer.Option(help="A new folder.")],
    hidden: Annotated[int, typer.Option(help="Width; the other sizes of 2B are scaled with it.")] = 2048,
    layers: Annotated[int, typer.Option(help="Layers of the language model and of the vision tower.")] = 4,
    steps: Annotated[int, typer.Option(min=4, help="Training steps of memorising.")] = 40,
    photographs: Annotated[int, typer.Option(help="Photographs to memorise.")] = 4,
    dtype: Annotated[
        str, typer.Option(help="Type in training; bfloat16 takes hours on a CPU without AVX-512, float32 minutes.")
    ] = "bfloat16",
) -> None:
    """Run the steps of the guide and print a table of them."""
    out.mkdir(parents=True)
    sizes = {name: value * hidden // 2048 for name, value in QWEN3_VL_2B.items()} | {"layers": layers}
    if hidden != QWEN3_VL_2B["hidden"]:
        sizes |= {"heads": 4, "kv_heads": 2, "head_dim": max(hidden // 4, 32)}
    runner = StepRunner(out)
    print(f"{hidden} wide, {layers} layers, {photographs} photographs, {steps} steps, {dtype}\n")
    print("| step | s | MB resident | last line |\n|---|---|---|---|")
    download, base, run, merged = (out / name for name in ("download", "base", "run", "merged"))
    helpers = ROOT / "apps/exporter/tests"
    runner.run("download", [sys.executable, "-c", MAKE_BASE, helpers, download, json.dumps(sizes)])
    runner.run("expand-vocab", [*EXPORTER, "expand-vocab", download, base])
    data = [f"data.annotations={annotations}", f"data.images={images}", f"data.limit={photographs}"]
    runner.run(
        "inspect", [*TRAINER, "inspect", annotations, "--images", images, "--model", base, "--out", out / "seen"]
    )
    train = [*TRAINER, "train", "-c", ROOT / "configs/dlora/memorise.yaml", f"model.path={base}", *data]
    train += ["model.attention=sdpa", f"model.dtype={dtype}", f"run.dir={run}", "data.max_pixels=65536"]
    train += [f"training.{word}" for word in ("per_device_train_batch_size=2", f"max_steps={steps}", "logging_steps=1")]
    # Random weights and few steps need higher rates without a long warm-up.
    train += [f"training.{word}" for word in ("learning_rate=2e-3", "warmup_ratio=0", "warmup_steps=2")]
    train += ["custom.coord_offset.embed_lr=4e-3", "custom.coord_offset.head_lr=4e-3", "evaluation.max_new_tokens=96"]
    runner.run("dry run", [*train, "--dry-run"])
    runner.run("memorise, stopped", train, stop_at=f"{steps // 2}/{steps}", exit_code=143)
    runner.run(
        "memorise, the rest", [*TRAINER, "train", "-c", run / "config.yaml", f"run.dir={run}", "run.resume=true"]
    )
    runner.run("merge", [*EXPORTER, "merge", base, run, merged, "--verify", "--dtype", "float32"])
    local, remote = out / "here", out / "there"
    common = [
        *TRAINER,
        "predict",
        merged,
        annotations,
        "--images",
        images,
        "--no-draw",
        f"evaluation.limit={photographs}",
    ]
    common += ["evaluation.max_new_tokens=96"]
    runner.run("predict", [*common, "--out", local])
    answers = [json.loads(line) for line in (local / "predictions.jsonl").read_text().splitlines()]
    prompt = json.loads((merged / "coordexp.json").read_text())["prompt"]
    first = images / answers[0]["image"]
    output = runner.run("transformers", [sys.executable, "-c", PLAIN, merged, first, prompt, "96"])
    start = time.monotonic()
    with served(merged, out / "server.log") as url:
        runner.add("swift deploy starts", time.monotonic() - start, 0, url)
        runner.run("predict, served", [*common, "--out", remote, "--endpoint", url, "--model", "boxes"])
    served_texts = [json.loads(line)["text"] for line in (remote / "predictions.jsonl").read_text().splitlines()]
    plain = json.loads(output.strip().rsplit("\n", 1)[-1])
    same = sum(answer["text"] == text for answer, text in zip(answers, served_texts, strict=True))
    agree = plain.strip() == answers[0]["text"].strip()
    print(f"\nserved answers equal to those of this process: {same} of {len(answers)}; plain transformers': {agree}")
    if same < len(answers) or not agree:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
