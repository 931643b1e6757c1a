"""The run folder: creates and locks it, writes configuration and manifest, and prepares a resume."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from coord_codec import InputError, RunError
from coord_codec.commands.plugins import plugin_digests
from coord_codec.counts import counted
from coord_codec.files import read_json, write_text
from coord_detect.console import is_first, rank, say, world_size
from coord_detect.model.card import installed_version
from coord_detect.model.checkpoints import fault_of, newest_complete, steps_of
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.load import changed_settings, flat_settings, read_yaml
from coord_trainer.config.run_config import RunConfig

_FULL_BYTES = 1 << 20
_LOCK = ".lock"
_PACKAGES = (
    *("coord-codec", "coord-data", "coord-losses", "coord-adapter", "coord-eval", "coord-trainer"),
    *("torch", "transformers", "peft", "ms-swift", "deepspeed", "accelerate", "pycocotools", "numpy"),
)


def open_run_folder(path: Path) -> Path | None:
    """Create `path`; an older run there is moved to the first free `path.N`, which is returned.

    Raises:
        RunError: the folder cannot be created.
    """
    moved = None
    try:
        if path.exists() and (not path.is_dir() or not holds_nothing(path)):
            moved = next(free for number in count(1) if not (free := path.with_name(f"{path.name}.{number}")).exists())
            path.rename(moved)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{path}: the run folder cannot be created ({error.strerror}); choose another with run.dir"
        ) from None
    return moved


def lock_run_folder(folder: Path) -> FileLock:
    """Lock `folder` against other runs until the lock is released.

    Raises:
        InputError: another run uses the folder.
        RunError: the folder cannot be written to.
    """
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(
            f"run.dir: another run is using {folder}; wait for its end, or choose another folder"
        ) from None
    except OSError as error:
        raise RunError(f"{folder}: cannot be written to ({error.strerror}); choose another with run.dir") from None
    return lock


def refuse_second_run(folder: Path) -> None:
    """Raise an `InputError` if another run uses `folder`; creates no file."""
    if (folder / _LOCK).exists():
        lock_run_folder(folder).release()


def holds_nothing(folder: Path) -> bool:
    """Return whether a folder is empty, except for the lock of an earlier run."""
    return not {file.name for file in folder.iterdir()} - {_LOCK}


@contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """Turn any error that a full disk causes into a `RunError`.

    torch and safetensors raise errors of their own, so that the free space of the disk is checked.
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if not full and "No space left" not in str(error) and shutil.disk_usage(folder).free > _FULL_BYTES:
            raise
        raise RunError(
            f"{getattr(error, 'filename', None) or folder}: no space left on the disk; free some, or choose another "
            "place with run.dir"
        ) from error


@contextmanager
def explain_lost_evaluation(folder: Path, checkpoint: Path) -> Iterator[None]:
    """Add to an error after training that the checkpoint is complete, and the command that scores it.

    The traceback of an unexpected error is written to error.txt.
    """
    try:
        yield
    except Exception as error:
        expected = isinstance(error, InputError | RunError)
        cause = str(error) if expected else f"{type(error).__name__}: {error} (see {folder / 'error.txt'})"
        if not expected:
            with suppress(OSError):
                write_text(folder / "error.txt", traceback.format_exc())
        if not is_first():  # whose error would not be printed, and the first one may have none
            print(f"error on rank {rank()}: {cause}", file=sys.stderr, flush=True)
        command = f"uv run apps/trainer evaluate {checkpoint} --out {folder / 'scored'} -c {folder / 'config.yaml'}"
        message = (
            f"{cause}\ntraining had finished and {checkpoint} is complete; remove the cause, then score it with:\n"
            f"{command}"
        )
        raise (InputError if isinstance(error, InputError) else RunError)(message) from error


def write_config(folder: Path, config: RunConfig) -> None:
    """Write the resolved configuration to config.yaml; `-c config.yaml` gives the same run."""
    values = config.model_dump(mode="json")
    values["run"]["resume"] = False  # whether it was resumed does not belong to the configuration
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    write_text(folder / "config.yaml", text)


_TURNS = 30
"""Tenths of a second that a rank which fails waits at most for the first one to record its own failure."""


class Manifest(AbstractContextManager["Manifest"]):
    """manifest.json: the facts of a run, rewritten atomically whenever one is added.

    As a context manager it records at the end whether the run finished or why it failed. On the ranks after
    the first, which do not write, `writes` is false.
    """

    def __init__(self, folder: Path, config: RunConfig, writes: bool = True) -> None:
        self._folder, self._path = folder, folder / "manifest.json" if writes else None
        # Read before it is overwritten.
        before = earlier_manifest(folder) if writes and config.run.resume else {}
        self._started = time.time()
        self.values: dict[str, Any] = {
            "status": "running",
            "command": ["coord-trainer", *sys.argv[1:]],
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seed": config.run.seed,
            "loss_terms": config.custom.loss_in_words,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processors": os.cpu_count(),
            "versions": {name: installed_version(name) for name in _PACKAGES},
            "git": _git_revision() if writes else None,
        }
        if config.plugins:
            self.values["plugins"] = plugin_digests(config.plugins)
        # Kept even if the resume is refused, or if training had ended and only the answers are left.
        kept = ("data", "parameters", "samples_seen")
        self.values |= {name: before[name] for name in kept if before.get(name)}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Record how the run ended."""
        if kind is None:
            self.update(status="finished")
            return
        interrupted = issubclass(kind, KeyboardInterrupt)
        if self._path is None and not interrupted:
            # torchrun ends the first rank as soon as another one has ended, and it may not have written why by then.
            for _ in range(_TURNS):
                if earlier_manifest(self._folder).get("status") != "running":
                    break
                time.sleep(0.1)
        with suppress(OSError):  # the disk may be full
            self.update(status="interrupted" if interrupted else f"failed: {kind.__name__}: {error}")

    def update(self, **values: Any) -> None:
        """Add values and write the file."""
        self.values |= values | {"seconds": round(time.time() - self._started, 1)}
        if self._path is not None:
            write_text(self._path, json.dumps(self.values, indent=2, default=str) + "\n")


def earlier_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of the run in `folder`, empty if there is none."""
    path = folder / "manifest.json"
    return read_json(path) if path.is_file() else {}


def _git_revision() -> dict[str, Any] | None:
    outputs = []
    for words in ("git rev-parse HEAD", "git status --porcelain -uno"):
        try:
            done = subprocess.run(
                words.split(), cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None  # installed from a wheel, or git is not installed
        outputs.append(done.stdout.strip())
    revision, changes = outputs
    return {"revision": revision, "changed": bool(changes)}


_MAY_DIFFER = {"run.resume", "run.dir"}
_ACTS = (
    r"max_steps|num_train_epochs|max_epochs|lr_scheduler_\w+|warmup_\w+|max_grad_norm"
    r"|(logging|eval|save)_\w+|per_device_\w+|gradient_accumulation_steps|train_dataloader_shuffle|dataloader_\w+"
    r"|(vit_)?gradient_checkpointing(_kwargs)?|ddp_\w+|torch_empty_cache_steps|tf32|full_determinism|use_liger_kernel"
    r"|liger_kernel_config|report_to|run_name|swanlab_\w+|max_shard_size|create_checkpoint_symlink|neftune_noise_alpha"
    r"|include_num_input_tokens_seen|max_length|truncation_strategy|padding_side|system|use_hf|metric_for_best_model"
    r"|greater_is_better|deepspeed|zero_hpz_partition_size"
)
"""Settings of `training` that act after a resume; the others are those of the optimizer and of the adapter on disk."""
_OF_CHECKPOINT = re.compile(rf"run\.seed|model\.(path|tiny\..+)|custom\.coord_offset\..+|training\.(?!({_ACTS})$).+")
"""Settings that a resumed training takes from its checkpoint: with another value they would be stated and not act."""


def prepare_resume(config: RunConfig, folder: Path) -> Path | None:
    """Print the checkpoint from which the run in `folder` is resumed, and truncate its metrics.jsonl there.

    Returns:
        The checkpoint, or None if there is no complete one, so that the run starts from its beginning.

    Raises:
        InputError: `folder` is not a run folder, or the optimizer of the checkpoint cannot be loaded.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"run.resume is true, but run.dir={folder} is a file: name the folder of the run")
    if not folder.exists() or holds_nothing(folder):
        say(f"run folder {folder} (run.resume: the folder is empty, so the run starts from its beginning)")
        folder.mkdir(parents=True, exist_ok=True)
        return None
    if not (folder / "config.yaml").is_file():
        raise InputError(f"run.resume is true, but {folder} holds no config.yaml: it is not a run folder")
    before = read_yaml(folder / "config.yaml")
    checkpoint, incomplete = newest_complete(folder / "checkpoints")
    start = f"after {checkpoint.name}" if checkpoint is not None else "from its beginning: no complete checkpoint"
    if checkpoint is not None:
        _check_same_optimizer(checkpoint, before, config)
        _check_settings_of_checkpoint(checkpoint, before, config)
    say(f"run folder {folder}, continuing {start}")
    for path in incomplete:
        say(f"  {path.name} is incomplete and is ignored: {fault_of(path)}")
    for name, (old, new) in changed_settings(before, config.model_dump(mode="json")).items():
        if name not in _MAY_DIFFER:
            say(f"  {name} was {old!r} and is now {new!r}")
    dropped = cut_metrics(folder / "metrics.jsonl", steps_of(checkpoint) if checkpoint is not None else 0)
    if dropped:
        say(f"  {counted(dropped, 'line')} of metrics.jsonl after that removed; those steps are repeated")
    return checkpoint


def _check_settings_of_checkpoint(checkpoint: Path, before: dict[str, Any], config: RunConfig) -> None:
    """Raise `InputError` if a setting has changed that a resume takes from the checkpoint, such as a learning rate."""
    changed, stated = changed_settings(before, config.model_dump(mode="json")), flat_settings(before)
    lost = [
        f"{name} was {old!r} and is now {new!r}"
        for name, (old, new) in changed.items()
        if _OF_CHECKPOINT.fullmatch(name) and (name in stated or name.startswith("training."))
    ]
    if lost:
        raise InputError(
            f"run.resume is true, but {checkpoint} keeps its own optimizer, adapter and random numbers, so that a new "
            f"value would have no effect: {'; '.join(lost)}; set it as it was, or start a new run with another run.dir"
        )


def _check_same_optimizer(checkpoint: Path, before: dict[str, Any], config: RunConfig) -> None:
    """Check DeepSpeed and the number of ranks: DeepSpeed saves the optimizer's state in one file per rank."""
    old, new = before["training"].get("deepspeed"), config.training.get("deepspeed")
    if old != new:
        raise InputError(
            f"run.resume is true, but {checkpoint} was saved with training.deepspeed={old} and this run has {new}: its "
            "optimizer cannot be loaded; set it as it was, or start a new run with another run.dir"
        )
    ranks = len(list(checkpoint.glob("rng_state_*.pth"))) or 1  # each rank saves its random state
    if ranks == world_size():
        return
    if new is not None:
        raise InputError(
            f"run.resume is true, but {checkpoint} was saved by {ranks} ranks, each with its part of the optimizer, "
            f"and there are {world_size()} now: start as many (torchrun --nproc_per_node), or a new run with another "
            "run.dir"
        )
    say(f"  {ranks} ranks trained before and {world_size()} do now: other batches, other random numbers")


def check_same_data(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise `InputError` if the digests of the data differ from those in the manifest (`before`)."""
    for name, facts in now.items():
        earlier = before.get(name)
        if earlier is not None and earlier["digest"] != facts["digest"]:
            raise InputError(
                f"run.resume is true, but the {name} data has changed since {folder} began (digest "
                f"{earlier['digest']}, now {facts['digest']}): restore it, or start a new run with another run.dir"
            )


def cut_metrics(path: Path, step: int) -> int:
    """Keep the lines up to `step`; returns the number of removed lines, including an incomplete last one."""
    if not path.is_file():
        return 0
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
    if len(kept) < len(lines):
        write_text(path, "".join(kept))
    return len(lines) - len(kept)


def prediction_files(decodings: Sequence[Decoding], run: Path) -> list[tuple[Decoding, Path]]:
    """Return a run's decodings with their predictions.jsonl; that of the first is in the run folder itself."""
    first, *others = decodings
    further = [(decoding, run / "decodings" / decoding.name / "predictions.jsonl") for decoding in others]
    return [(first, run / "predictions.jsonl"), *further]
