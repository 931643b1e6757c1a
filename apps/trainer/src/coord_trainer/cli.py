"""`uv run apps/trainer`: the first run without arguments, everything else by subcommand.

Help, mistakes in the command line and mistakes in a configuration are answered before torch is imported: each command
imports what does its work only once the configuration has been checked.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from coord_codec import InputError
from coord_codec.boxes import OnBadBox
from coord_trainer.config.formats import Format
from coord_trainer.console import RunError, is_first, say
from coord_trainer.elsewhere import pointer

if TYPE_CHECKING:
    from coord_eval import Evaluation
    from coord_trainer.config.run_config import RunConfig

_ENVIRONMENT = {
    # swift and Hugging Face look these up while they are imported; no look-up unless a configuration asks for it.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "LOG_LEVEL": "WARNING",  # of swift's logger while it is imported
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "KINETO_LOG_LEVEL": "99",  # the profiler warns when there is no GPU
}
_EXAMPLES = """

Examples:

  uv run apps/trainer

  uv run apps/trainer data.shapes.train=500 run.dir=small

  uv run apps/trainer train -c configs/dlora/coord_offset.yaml

  uv run apps/trainer compare configs/phase1/*.yaml --seeds 3

  uv run apps/trainer config data.max
"""


def main() -> None:
    """Run a command; mistakes become one message on stderr and an exit code."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if os.environ.get("RANK", "0") != "0":
        os.environ["TQDM_DISABLE"] = "1"  # one bar is enough
    installed = Path(sys.argv[0]).name == "coord-trainer"
    app(prog_name=None if installed else "uv run apps/trainer")


class _Commands(TyperGroup):
    """The commands; words of a configuration without a command belong to the first run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        if not args or first.split("=")[0] == "--adapter" or ("=" in first and first[:1] != "-"):
            args = ["first-run", *args]
        elif place := pointer(first):
            _stop(f"error: {first}: no such command{place}", 2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _exit_codes():
            return super().invoke(ctx)


@contextmanager
def _exit_codes() -> Iterator[None]:
    """2 for bad input, 1 for a run that failed, 130 for an interrupt; no traceback for any of them."""
    try:
        yield
    except InputError as error:
        _stop(f"error: {error}", 2)
    except RunError as error:
        _stop(f"error: {error}", 1)
    except PermissionError as error:
        _stop(f"error: {error.filename or error}: {error.strerror or 'no permission'}; choose another place", 1)
    except OSError as error:
        if error.errno == errno.EROFS:
            _stop(f"error: {error.filename}: lies on a read-only file system; choose another place", 1)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename or "the disk"
        _stop(f"error: {place}: no space left; free some or choose another place", 1)
    except KeyboardInterrupt as error:  # of a run: `Interrupted`, which says how to go on
        if is_first():
            print(str(error) or "interrupted", file=sys.stderr, flush=True)
        sys.exit(getattr(error, "code", 130))


def _stop(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train Qwen3-VL to detect objects with coordinate tokens, score it and write a report.\n\n"
    "Without a command it carries out the built-in first run, in a few minutes; settings may follow." + _EXAMPLES,
)
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[section.key=value]...", help="Settings that override the configuration's; `config` lists them all."
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="The YAML configuration; configs/ has examples.")
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Make any bad record of the annotations an error; otherwise bad records are left out and listed.",
    ),
]
NewPlace = Annotated[
    Path, typer.Option("--out", help="The place that the result is written to, which must not exist yet.")
]
Checkpoint = Annotated[
    Path,
    typer.Argument(
        help="A run folder, or the folder of a checkpoint or of an adapter whose base is on disk.", show_default=False
    ),
]


@app.command("first-run")
def first_run(
    overrides: Overrides = None,
    adapter: Annotated[
        Literal["none", "offset"],
        typer.Option(
            help="What is trained: the whole model, or LoRA and coordinate offsets on a frozen model (`offset`)."
        ),
    ] = "none",
) -> None:
    """Train a tiny Qwen3-VL on generated shapes and score it: runs/first-run/report.html.

    This is what runs without a command.
    """
    from coord_trainer.config.run_config import load_run_config

    name = "first-run" if adapter == "none" else f"first-run-{adapter}"
    with as_file(files(__package__) / f"{name}.yaml") as file:
        _train(load_run_config(file, overrides or []), name)


@app.command()
def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    strict: Strict = False,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print settings, data, vocabulary, learning rates and memory without loading weights or training.",
        ),
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Measure a few steps and report where their time goes.")
    ] = False,
) -> None:
    """Train from a configuration, score the result and write a report.

    Example: uv run apps/trainer train -c configs/memorise.yaml data.annotations=a.json data.images=images
    """
    overrides = [*(overrides or []), *(["run.profile=true"] if profile else [])]
    resolved = _resolve(config, overrides, strict)
    if not dry:
        _train(resolved, config.stem if config is not None else "train")
        return
    _load_libraries()
    from coord_trainer.preview import dry_run

    dry_run(resolved)


@app.command()
def compare(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG... [section.key=value]...",
            help="The configurations, one per group, and settings that hold for all of them.",
            show_default=False,
        ),
    ],
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Train each group with the seeds 0 to N-1.")] = 3,
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The setting that all configurations are laid over; base/shapes.yaml beside them when not given.",
        ),
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Variants that replace some configurations; see configs/sweeps.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the comparison; finished runs in it are kept.")] = Path(
        "runs/compare"
    ),
    jobs: Annotated[
        int, typer.Option(min=1, help="How many runs train side by side, with one thread each if several.")
    ] = 2,
    resamples: Annotated[
        int, typer.Option(min=0, help="Bootstrap resamples of the images for confidence intervals.")
    ] = 300,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Resolve and print everything; train and write nothing.")
    ] = False,
) -> None:
    """Train several configurations with the same data and seeds, and write one report.

    Example: uv run apps/trainer compare configs/phase1/*.yaml --seeds 3
    """
    from coord_trainer.comparison.plan import default_base, plan_groups

    configs = [Path(word) for word in words if "=" not in word or Path(word).is_file()]
    overrides = [word for word in words if Path(word) not in configs]
    base = base or default_base(configs)
    plan_groups(configs, base, overrides, sweep)  # mistakes are told before the slow imports
    _load_libraries()
    from coord_trainer.comparison.run import compare_configs

    report = compare_configs(
        configs,
        overrides,
        seeds=seeds,
        base=base,
        sweep=sweep,
        out=out,
        jobs=jobs,
        resamples=resamples,
        dry_run=dry_run,
    )
    if report is not None:
        say(f"report: {report}")


@app.command()
def evaluate(
    checkpoint: Checkpoint,
    out: NewPlace,
    overrides: Overrides = None,
    config: ConfigFile = None,
    strict: Strict = False,
) -> None:
    """Answer the images that evaluation.pictures names with a checkpoint, score the answers and write a report.

    Example: uv run apps/trainer evaluate runs/a/checkpoints/checkpoint-500 --out scored -c runs/a/config.yaml
    """
    checkpoint, config = _asked(checkpoint, config)
    resolved = _resolve(config, overrides, strict, checkpoint)
    _must_not_exist(out)
    _load_libraries()
    from coord_trainer.answers.score import evaluate_checkpoint

    _print_scores(evaluate_checkpoint(resolved, checkpoint, out), out)


@app.command()
def predict(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL [SRC]... [section.key=value]...",
            help="A checkpoint, adapter, export or run folder; then images: folders, files, patterns, or one file of "
            "annotations, which the answers are scored by.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder of the answers; a second call goes on in it.")],
    config: ConfigFile = None,
    images: Annotated[Path | None, typer.Option(help="The folder of the images of annotations.")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Ask an OpenAI-compatible server, for example http://localhost:8000/v1."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The model as the server of --endpoint calls it.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests to the server at a time.")] = 8,
    export: Annotated[
        list[str] | None,
        typer.Option(help="Also write annotations for labelstudio, coco, yolo, voc or fiftyone; may be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Throw the answers in --out away and start anew.")] = False,
    draw: Annotated[bool, typer.Option(help="Draw the images and write index.html.")] = True,
    strict: Strict = False,
) -> None:
    """Find objects in images with a trained model: boxes, drawn images and a page in the folder --out.

    Example: uv run apps/trainer predict runs/a photos --out found

    Without SRC it answers the images of the configuration into the file --out, as `evaluate` does, without scoring.
    """
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.detect.words import split_words

    model, sources, settings = split_words(words, endpoint is not None)
    if not sources:
        _predict_configured(model, out, settings, config, strict)
        return
    resolved = load_run_config(config, settings, trains=False)
    _load_libraries()
    from coord_trainer.detect.command import Request, answer_request

    exports = tuple(export or ())
    request = Request(model, sources, out, images, endpoint, name, concurrency, exports, force, draw)
    answer_request(request, resolved)


def _predict_configured(model: Path | None, out: Path, settings: list[str], config: Path | None, strict: bool) -> None:
    if model is None:
        raise InputError("expected images to answer: predict MODEL SRC... --out DIR")
    model, config = _asked(model, config)
    resolved = _resolve(config, settings, strict, model)
    _must_not_exist(out)
    _load_libraries()
    from coord_trainer.answers.score import predict_checkpoint

    say(f"{predict_checkpoint(resolved, model, out)} answers in {out}")


@app.command()
def prepare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SRC...",
            help="Files or folders of annotations; the last one may be the folder of their images.",
            show_default=False,
        ),
    ],
    out: NewPlace,
    images: Annotated[Path | None, typer.Option(help="The folder that image paths are relative to.")] = None,
    format: Annotated[Format, typer.Option(help="The format of the annotations; auto tells it by content.")] = "auto",
    split: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of images for val.jsonl; by their content.")
    ] = None,
    on_bad_box: Annotated[
        OnBadBox, typer.Option(help="What a wrong object does: takes its image along, goes alone, or is an error.")
    ] = "drop_image",
    strict: Strict = False,
) -> None:
    """Turn annotations (COCO, VOC, YOLO, CSV, LVIS, ...) into instance JSONL, and list what is left out.

    Example: uv run apps/trainer prepare annotations.json images --out prepared
    """
    _must_not_exist(out)
    from coord_trainer.config.sections import DataSection
    from coord_trainer.data.prepare import prepare as write_prepared

    data = DataSection.model_construct(
        **DataSection().model_dump() | {"images": images, "format": format, "on_bad_box": on_bad_box, "strict": strict}
    )
    write_prepared(sources, out, data, split)


@app.command()
def inspect(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA] [section.key=value]...",
            help="The annotations, or the folder that `prepare` made; and settings of the configuration.",
        ),
    ] = None,
    images: Annotated[Path | None, typer.Option(help="The folder that image paths are relative to.")] = None,
    config: ConfigFile = None,
    model: Annotated[
        str | None, typer.Option(metavar="M", help="The checkpoint whose processor and tokenizer the page shows.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of findings.json and inspect.html.")] = Path("runs/inspect"),
    sample: Annotated[
        int | None,
        typer.Option("--sample", "--number", "-n", min=0, help="Print image N of the training set token by token."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings as well.")] = False,
) -> None:
    """Examine data before training: what is wrong with annotations and images, with evidence, and what mends it.

    Writes findings.json and inspect.html. Exits with 1 if something would spoil training.

    Example: uv run apps/trainer inspect annotations.json --images photos
    """
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.inspection.words import split_words

    resolved = load_run_config(config, split_words(words or [], images, model), trains=False)
    if sample is None and resolved.data.annotations is not None:
        from coord_trainer.inspection.report import inspect_data

        inspect_data(resolved, out, with_model=model is not None or config is not None, strict=strict)
        return
    _load_libraries()
    from coord_trainer.preview import inspect_sample

    inspect_sample(resolved, sample or 0)


@app.command("config")
def list_config(
    prefix: Annotated[str, typer.Argument(help="A section, a key or the beginning of one, for example data.max.")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables, one per section.")] = False,
) -> None:
    """List configuration keys with their type, default and meaning.

    Example: uv run apps/trainer config custom.coord_offset
    """
    from coord_trainer.config.reference import as_markdown, as_text, config_keys

    keys = config_keys(prefix)
    typer.echo(as_markdown(keys) if markdown else as_text(keys))


@app.command()
def doctor() -> None:
    """Check versions, devices, and that ms-swift still has the functions which training overrides."""
    _load_libraries()
    from coord_trainer.swift.doctor import examine

    examine()


def _resolve(
    config: Path | None, overrides: list[str] | None, strict: bool, checkpoint: Path | None = None
) -> RunConfig:
    """Return the checked configuration, with what the user did not set as `checkpoint` wants it."""
    from coord_trainer.config.run_config import load_run_config

    words = [*(overrides or []), *(["data.strict=true"] if strict else [])]
    resolved = load_run_config(config, words, trains=checkpoint is None)
    if checkpoint is not None:
        resolved = _as_trained(resolved, checkpoint)
    if resolved.model.attention != "flash_attention_2":
        return resolved
    from coord_trainer.model.checkpoint import with_usable_attention

    return with_usable_attention(resolved)


def _asked(model: Path, config: Path | None) -> tuple[Path, Path | None]:
    """Return the checkpoint that `model` names, and its run's configuration where none is given."""
    from coord_trainer.checkpoints import find_checkpoint

    checkpoint = find_checkpoint(model)
    own = model / "config.yaml"
    if checkpoint != model:
        say(f"{model}: a run folder; {checkpoint.name} answers")
        config = own if config is None and own.is_file() else config
    return checkpoint, config


def _as_trained(resolved: RunConfig, checkpoint: Path) -> RunConfig:
    from coord_trainer.model.card import CARD_FILE, follow_card, read_card

    card = read_card(checkpoint)
    if card is not None:
        return follow_card(resolved, card, checkpoint)
    if checkpoint.is_dir():
        say(f"{checkpoint}: no {CARD_FILE}, so prompt, markers and pixels are the configuration's, unchecked")
    return resolved


def _must_not_exist(out: Path) -> None:
    if out.exists():
        raise InputError(f"--out: {out} exists already; choose another name or move it away")


def _load_libraries() -> None:
    """Say that the slow imports begin."""
    say("coord-trainer: loading PyTorch and Transformers")
    import torch

    # DeepSpeed would otherwise guess, and warn about it on stdout.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")


def _train(resolved: RunConfig, name: str) -> None:
    _load_libraries()
    from coord_trainer.console import leave_process_group
    from coord_trainer.run import train_and_score

    result = train_and_score(resolved, resolved.run.dir or Path("runs") / name)
    leave_process_group()
    if result.evaluation is not None:
        _print_scores(result.evaluation, result.folder)


def _print_scores(evaluation: Evaluation, folder: Path) -> None:
    from coord_trainer.answers.score import summary

    for line in summary(evaluation):
        say(line)
    say(f"report: {folder / 'report.html'}")
