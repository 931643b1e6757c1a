"""Time and memory of `merge` against PEFT's merge and save, on random weights with the widths of a 2B Qwen3-VL.

    python apps/exporter/benchmarks/merge_against_peft.py --folder SCRATCH --layers 20 [--cases lora-tied,...]

Both do the whole job, from the files of base and adapter to the files of the merged checkpoint, each in a process
of its own whose imports are done; memory is the peak above what these leave resident. The base's files are read once
before each run, so that both find them in the system's cache; the sides take turns. Times are medians, and the ratio is
the median of the ratios to the copy of the same turn. The outputs are compared bit by bit. The folder must have room
for four checkpoints (about 3 GB each).

The exporter returns when the bytes are on the disk and the base's digests are taken. PEFT returns when the system has
the bytes: its time is given as it is, and with a sync after it. Processor time says more on a busy machine. `cp` and
`sync` of the base in the same turn say how fast the machine is: the ratio to them depends on its cores (the digests
need one of their own) more than on its disk.

`--sparse` merges, once and without PEFT, 16 GB of an 8B model whose shards are holes but for one random value in each
tensor: what memory the exporter takes does not depend on the size of the model. It needs 17 GB of disk.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

CASES = ("lora-tied", "lora-untied", "dora-tied", "dora-untied")
TEXT_LINEAR = r".*language_model.*_proj"
IDS = range(150_000, 151_000)


def status_mb(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def make_config(layers, tied, hidden=2048, intermediate=6144, heads=16):
    from transformers import Qwen3VLConfig

    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    text = {
        "vocab_size": 151_936,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
    }
    text |= {"num_attention_heads": heads, "num_key_value_heads": 8, "head_dim": 128, "rope_parameters": rope}
    vision = {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": hidden}
    vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    return Qwen3VLConfig(
        text_config=text | {"tie_word_embeddings": tied},
        vision_config=vision,
        tie_word_embeddings=tied,
        architectures=["Qwen3VLForConditionalGeneration"],
        dtype="bfloat16",
    )


def make_base(folder, layers, tied, shard_bytes=1_000_000_000):
    """Random bf16 weights, written shard by shard: values repeat after 16 million, which no merge notices."""
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen3VLForConditionalGeneration

    folder.mkdir(parents=True)
    config = make_config(layers, tied)
    config.save_pretrained(folder)
    with torch.device("meta"):
        names = Qwen3VLForConditionalGeneration(config).state_dict()
    pool = (torch.randn(1 << 24, generator=torch.Generator().manual_seed(0)) * 0.02).bfloat16()
    shards, held = [{}], 0
    for k, (name, tensor) in enumerate(names.items()):
        if tied and name == "lm_head.weight":
            continue
        if shards[-1] and held + 2 * tensor.numel() > shard_bytes:
            shards.append({})
            held = 0
        held += 2 * tensor.numel()
        shards[-1][name] = (k, tensor.shape)
    weight_map = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        filled = {}
        for name, (k, shape) in shard.items():
            count = shape.numel()
            repeated = pool.roll(7919 * k).repeat(-(-count // len(pool)))[:count]
            filled[name] = repeated.reshape(shape).clone()
            weight_map[name] = file
        save_file(filled, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_sparse(folder, shard_bytes=4_000_000_000):
    """An untied 8B model in bf16: headers, holes, and one random value at the start of each tensor."""
    import struct

    import torch
    from transformers import Qwen3VLForConditionalGeneration

    folder.mkdir(parents=True)
    config = make_config(36, False, 4096, 12288, 32)
    config.save_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: list(t.shape) for name, t in Qwen3VLForConditionalGeneration(config).state_dict().items()}
    shards, held = [{}], 0
    for name, shape in shapes.items():
        nbytes = 2 * torch.Size(shape).numel()
        if held + nbytes > shard_bytes:
            shards.append({})
            held = 0
        shards[-1][name] = {"dtype": "BF16", "shape": shape, "data_offsets": [held, held + nbytes]}
        held += nbytes
    weight_map, values = {}, torch.randn(len(shapes), generator=torch.Generator().manual_seed(0)).bfloat16()
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        header = json.dumps(shard | {"__metadata__": {"format": "pt"}}).encode()
        with (folder / file).open("wb") as out:
            out.write(struct.pack("<Q", len(header)) + header)
            for name, entry in shard.items():
                out.seek(8 + len(header) + entry["data_offsets"][0])
                out.write(values[len(weight_map), None].view(torch.uint8).numpy().tobytes())
                weight_map[name] = file
            out.truncate(8 + len(header) + max(entry["data_offsets"][1] for entry in shard.values()))
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_adapter(folder, base, dora):
    import torch
    from peft import LoraConfig
    from safetensors.torch import save_file

    from coord_adapter import with_offset_modules
    from coord_exporter.checkpoint.read import open_checkpoint

    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(1)
    config = LoraConfig(r=16, lora_alpha=32, use_dora=dora, target_modules=TEXT_LINEAR)
    with_offset_modules(config).save_pretrained(folder)
    tensors = {}
    for name, info in open_checkpoint(base).tensors.items():
        if "language_model" in name and name.endswith("_proj.weight"):
            module = "base_model.model." + name.removesuffix(".weight")
            out_width, in_width = info.shape
            tensors[f"{module}.lora_A.weight"] = torch.randn(16, in_width, generator=generator) * 0.02
            tensors[f"{module}.lora_B.weight"] = torch.randn(out_width, 16, generator=generator) * 0.02
            if dora:
                tensors[f"{module}.lora_magnitude_vector"] = torch.rand(out_width, generator=generator) + 0.5
    start = "base_model.model.coord_offset_adapter."
    tensors[f"{start}token_ids"] = torch.tensor(list(IDS))
    hidden = open_checkpoint(base).tensors["model.language_model.embed_tokens.weight"].shape[1]
    tensors[f"{start}embed_offset"] = torch.randn(len(IDS), hidden, generator=generator) * 0.01
    tensors[f"{start}head_offset"] = torch.zeros(0, hidden)
    tensors[f"{start}fingerprint"] = torch.zeros(0, dtype=torch.uint8)
    tensors[f"{start}format_version"] = torch.ones(1, dtype=torch.uint8)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def run_exporter(base, adapter, out):
    import torch  # noqa: F401

    from coord_exporter import merge

    resident, started = status_mb("VmRSS"), (time.perf_counter(), time.process_time())
    merge(base, adapter, out, verify=False, quiet=True)
    return resident, started


def run_peft(base, adapter, out):
    import torch
    from peft import PeftModel  # noqa: F401
    from transformers import Qwen3VLForConditionalGeneration

    from coord_adapter import bake_offsets, load_adapter

    resident, started = status_mb("VmRSS"), (time.perf_counter(), time.process_time())
    with torch.no_grad():
        model = Qwen3VLForConditionalGeneration.from_pretrained(base, dtype=torch.bfloat16)
        model = bake_offsets(load_adapter(model, adapter).merge_and_unload())
        model.save_pretrained(out)
    return resident, started


def measure(side, base, adapter, out):
    """Seconds of the call, seconds until the disk has it, and MB above imports, in a fresh process."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, __file__, "--side", side, str(base), str(adapter), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_side(side, base, adapter, out):
    run = run_peft if side == "peft" else run_exporter
    resident, started = run(Path(base), Path(adapter), Path(out))
    returned, processor = time.perf_counter() - started[0], time.process_time() - started[1]
    os.sync()
    durable = time.perf_counter() - started[0]
    found = {"returned": returned, "durable": durable, "processor": processor}
    print(json.dumps(found | {"memory": status_mb("VmHWM") - resident}))


def read_once(folder):
    """Bring a checkpoint into the system's cache, and whatever else is being written out of the way."""
    block = bytearray(1 << 23)
    for path in folder.glob("*.safetensors"):
        with path.open("rb", buffering=0) as file:
            while file.readinto(block):
                pass
    os.sync()


def compare(base, adapter, outs, repeats):
    """The median times and the largest memory of both sides over some runs in turn."""
    runs = {side: [] for side in outs}
    for _ in range(repeats):
        copying = copy_and_sync(base, next(iter(outs.values())).with_name("copy"))
        for side, out in outs.items():
            read_once(base)
            found = measure(side, base, adapter, out)
            runs[side].append(found | {"copying": copying, "ratio": found["returned"] / copying})
            print(f"{side}: {runs[side][-1]}", file=sys.stderr, flush=True)
    return tuple(
        {key: (max if key == "memory" else median)(run[key] for run in held) for key in held[0]}
        for held in runs.values()
    )


def copy_and_sync(base, copy):
    """Seconds that the same bytes take to copy and to reach the disk: what no merge can be faster than."""
    shutil.rmtree(copy, ignore_errors=True)
    read_once(base)
    started = time.perf_counter()
    subprocess.run(["cp", "-r", str(base), str(copy)], check=True)
    os.sync()
    seconds = time.perf_counter() - started
    shutil.rmtree(copy)
    return seconds


def row(case, size, ours, theirs, wrong):
    returned, durable = theirs["returned"], theirs["durable"]
    return (
        f"| {case} | {size:.2f} | {ours['returned']:.1f} | {ours['copying']:.1f} "
        f"| {ours['ratio']:.1f} | {ours['memory']:.0f} "
        f"| {returned:.1f} / {durable:.1f} | {theirs['memory']:.0f} "
        f"| {returned / ours['returned']:.1f} / {durable / ours['returned']:.1f} "
        f"| {ours['processor']:.1f} / {theirs['processor']:.1f} "
        f"| 1/{theirs['memory'] / ours['memory']:.0f} | {'equal' if not wrong else wrong[:3]} |"
    )


def different_tensors(one, other):
    from coord_exporter.checkpoint.read import open_checkpoint

    first, second = open_checkpoint(one).tensors, open_checkpoint(other).tensors
    if first.keys() != second.keys():
        return sorted(first.keys() ^ second.keys())
    return [
        name
        for name, tensor in first.items()
        if any(tensor.read(lo, hi) != second[name].read(lo, hi) for lo, hi in tensor.blocks(32 << 20))
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-merge"))
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="leave bases and adapters for the next call")
    parser.add_argument("--sparse", action="store_true", help="16 GB of an 8B model, without PEFT")
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(*arguments.side)
        return
    folder = arguments.folder
    if arguments.sparse:
        make_sparse(folder / "sparse")
        make_adapter(folder / "sparse-lora", folder / "sparse", False)
        found = measure("exporter", folder / "sparse", folder / "sparse-lora", folder / "out")
        size = sum(path.stat().st_size for path in (folder / "out").glob("*.safetensors")) / 1e9
        print(f"{size:.1f} GB: {found['returned']:.0f} s, {found['memory']:.0f} MB above the imports")
        shutil.rmtree(folder)
        return
    outs = {"exporter": folder / "exporter", "peft": folder / "peft"}
    columns = "case|GB|exporter s|cp + sync s|ratio|MB|PEFT s|MB|times faster|processor s|memory|bits"
    print(f"| {columns.replace('|', ' | ')} |")
    print(f"|{'---|' * len(columns.split('|'))}", flush=True)
    for case in arguments.cases.split(","):
        kind, tie = case.split("-")
        base, adapter = folder / tie, folder / kind
        if not base.exists():
            make_base(base, arguments.layers, tie == "tied")
        if not adapter.exists():
            make_adapter(adapter, base, kind == "dora")
        ours, theirs = compare(base, adapter, outs, arguments.repeats)
        wrong = different_tensors(*outs.values())
        size = sum(path.stat().st_size for path in base.glob("*.safetensors")) / 1e9
        print(row(case, size, ours, theirs, wrong), flush=True)
    for path in outs.values() if arguments.keep else [folder]:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
