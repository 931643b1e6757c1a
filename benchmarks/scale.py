"""Measures how time and memory of each stage grow with the number of records, each in a process of its own.

    uv run python benchmarks/scale.py [10000 100000] [--stage read --stage parse ...]

A record has seven boxes on average. `read` opens and checks instance JSONL for the first time, `again` maps what that
cached, `first` also encodes the first batch of a shuffled epoch by two workers and prints its seconds on stderr, which
must not grow; `inspect` is the whole command with its images, `mixture` assigns an epoch of two sources, `encode`
makes target texts, `parse` reads them, both on all cores, and `score` compares files of as many images and answers.
Rows appear as measured.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

LARGE = runpy.run_path(str(Path(__file__).parents[1] / "packages" / "coord-data" / "benchmarks" / "large_data.py"))
BATCH = 32
CHUNK = 1000
"""Records that a process encodes or parses at a time."""
Stage = StrEnum("Stage", ["read", "again", "first", "inspect", "mixture", "encode", "parse", "score"])


def texts(lines: list[str], parsed: bool) -> list[tuple[int | str | None, str]]:
    """Return the image id and the target text of each record of some lines, each of them `parsed` if that is asked."""
    from coord_codec import Instance, encode_target
    from coord_eval import parse_answer

    found = []
    for line in lines:
        instance = Instance.model_validate_json(line)
        found.append((instance.image_id, encode_target(instance)))
        if parsed:
            parse_answer(found[-1][1])
    return found


class Targets:
    """The target texts of records, each encoded when a worker asks for it."""

    def __init__(self, records) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> str:
        from coord_codec import encode_target

        return encode_target(self.records[index])


def first_batch(images) -> None:
    """Encode the first batch of a shuffled epoch, as the workers of a training do."""
    from swift.dataloader import BatchSamplerShard, DataLoaderShard

    batches = BatchSamplerShard(len(images), BATCH, shuffle=True, drop_last=False, data_seed=0)
    loader = DataLoaderShard(Targets(images.instances), batch_sampler=batches, num_workers=2, collate_fn=list)
    began = time.perf_counter()
    next(iter(loader))
    print(f"first batch of {len(images):,}: {time.perf_counter() - began:.2f} s", file=sys.stderr)


def carry_out(stage: Stage, path: Path) -> None:
    """Carry out a stage on an instance file, in this process."""
    if stage in (Stage.read, Stage.again, Stage.first):
        from coord_data.reading.image_set import load_annotated

        images = load_annotated(path)
        if stage == Stage.first:
            first_batch(images)
    elif stage == Stage.inspect:
        from coord_data.cli import main

        sys.argv = ["coord-data", "inspect", str(path), "--out", str(path.parent / "inspected")]
        main()
    elif stage == Stage.mixture:
        from coord_trainer.data.mixture import Plan

        size = sum(1 for _ in path.open())
        plan = Plan.of([size, max(size // 10, 1)], [1, 1])
        for index in range(len(plan)):
            plan.locate(index, 0)
    else:
        from coord_data.looking.processes import in_processes
        from coord_eval import score

        answers = path.parent / "answers.jsonl"
        with path.open() as lines, answers.open("w") as file:
            chunks = iter(lambda: list(islice(lines, CHUNK)), [])
            for _, chunk in in_processes(partial(texts, parsed=stage == Stage.parse), chunks):
                if stage == Stage.score:
                    file.writelines(json.dumps({"image_id": key, "text": text}) + "\n" for key, text in chunk)
        if stage == Stage.score:
            score(path, answers)


def main(
    sizes: Annotated[list[int], typer.Argument(help="Numbers of records.")] = [10_000, 100_000],  # noqa: B006
    stage: Annotated[list[Stage], typer.Option(help="The stages to measure.")] = list(Stage),  # noqa: B006
    only: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Print processor seconds, time and peak memory of each stage at each size."""
    if only is not None:
        carry_out(stage[0], only)
        return
    print("| stage | records | processor s | µs a record | wall s | peak MB |\n|---|---|---|---|---|---|", flush=True)
    for size in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            path = LARGE["write"](Path(scratch) / "data", size)
            for one in stage:
                seconds, wall, peak = measured(one, path, Path(scratch) / "cache")
                row = f"{one} | {size:,} | {seconds:.1f} | {1e6 * seconds / size:,.0f} | {wall:.1f} | {peak:,.0f}"
                print(f"| {row} |", flush=True)


def measured(stage: Stage, path: Path, cache: Path) -> tuple[float, float, float]:
    """Carry out a stage in a new process.

    Returns:
        Processor seconds, of children too; seconds that passed; and the peak of resident megabytes.
    """
    began = time.perf_counter()
    words = [sys.executable, __file__, "--stage", stage, "--only", str(path)]
    with subprocess.Popen(words, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, stdout=subprocess.DEVNULL) as process:
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode not in (0, 1):  # 1: the inspection found faults
        sys.exit(f"{stage}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - began, usage.ru_maxrss / 1024


if __name__ == "__main__":
    typer.run(main)
