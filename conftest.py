"""Settings of every test in the workspace."""

import contextlib
import gc
import io
import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from hypothesis import settings

# Two test workers on two cores: threads of one would only wait for those of the other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

FULL = "COORDEXP_FULL"
"""The environment variable that `--full` sets: slow tests too, and fuzz of its whole size."""

SEED = "COORDEXP_SEED"
"""The environment variable with the seed of all fuzz and draws of cases; drawn anew for each run unless it is set."""

WHOLE = pytest.StashKey[bool]()
"""Whether all cases run: with `--full`, or of a test that is named."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for everything."""
    parser.addoption("--full", action="store_true", help="run slow tests too, and fuzz of its whole size")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave out slow tests and real servers unless asked for: by `-m`, by `--full`, or by name (`FILE::TEST`, `-k`)."""
    if config.getoption("--full"):
        os.environ[FULL] = "1"
    named = config.option.keyword or any("::" in word for word in config.args)
    if not (os.environ.get(FULL) or config.option.markexpr or named):
        config.option.markexpr = "not slow and not server"
    os.environ.setdefault(SEED, str(random.randrange(10**6)))  # before the workers start
    # Machines are shared and noisy: how long an example takes says nothing about the code.
    examples = 100 if os.environ.get(FULL) else 5
    settings.register_profile("workspace", deadline=None, derandomize=False, print_blob=True, max_examples=examples)
    settings.load_profile("workspace")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell that was started in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[WHOLE] = bool(os.environ.get(FULL) or named)


@pytest.hookimpl(trylast=True)  # of those that `-m` leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the cases of the printed seed where a test is marked `drawn`.

    `drawn(3)` keeps three of the test's cases; `drawn(3, "family")` all cases of three values of its argument `family`
    (text or numbers), which are the same for all tests of the file; `drawn(3, among="launches")` three of the cases of
    all tests of the file that say so.
    """
    kept: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in [] if config.stash[WHOLE] else items:
        if (mark := item.get_closest_marker("drawn")) and isinstance(item, pytest.Function):
            case = f"{item.path} {item.callspec.params[mark.args[1]]}" if mark.args[1:] else item.nodeid
            pool = f"{item.path} {mark.kwargs.get('among', item.originalname)}"
            kept.setdefault(pool, {}).setdefault(case, []).append(item)
    left_out: list[pytest.Item] = []
    for cases in kept.values():
        drawn = sorted(cases, key=lambda case: random.Random(f"{os.environ[SEED]} {case}").random())
        count = next(iter(cases.values()))[0].get_closest_marker("drawn").args[0]
        left_out += [item for case in drawn[count:] for item in cases[case]]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


DEAR_EXAMPLES = {"coord_data.inspection.examine", "coord_losses.hf.trainer"}
"""Modules whose examples take more than a processor second, measured."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `documented_module` the modules of the test's package that have examples, by name."""
    if "documented_module" not in metafunc.fixturenames:
        return
    folder = next(path for path in metafunc.definition.path.parents if (path / "src").is_dir()) / "src"
    files = [path for path in sorted(folder.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    names = [".".join(p.relative_to(folder).with_suffix("").parts).removesuffix(".__init__") for p in files]
    rows = [pytest.param(name, marks=pytest.mark.slow) if name in DEAR_EXAMPLES else name for name in names]
    metafunc.parametrize("documented_module", rows)


def pytest_report_header() -> str:
    """Say how to draw the same fuzz again."""
    return f"fuzz and drawn cases: {SEED}={os.environ[SEED]} draws the same again"


class Fuzz(NamedTuple):
    """Random input of a test: a generator seeded by the run and the test, and how often to draw."""

    draw: random.Random
    share: int

    def times(self, count: int) -> range:
        """Return the rounds: `count` of them with `--full`, else a twentieth."""
        return range(count // self.share)


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Fuzz:
    """Input drawn anew in each run; a failure shows the seed that draws it again."""
    print(f"{SEED}={os.environ[SEED]}")
    return Fuzz(random.Random(f"{os.environ[SEED]} {request.node.nodeid}"), 1 if os.environ.get(FULL) else 20)


def pytest_collection_finish() -> None:
    """Leave the imported libraries out of all further garbage collections, here and in forks of this process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real data; beside the repository or where COORDEXP_SHARED says."""
    here = Path(__file__).resolve()
    candidates = [Path(value) for value in [os.environ.get("COORDEXP_SHARED", "")] if value]
    candidates += [parent.parent / "shared" for parent in here.parents if (parent / ".git").exists()]
    for candidate in candidates:
        if (candidate / "data").is_dir():
            return candidate / "data"
    pytest.skip("no real data: put it in ../shared or set COORDEXP_SHARED")


_SECONDS = 600
"""After this long a fork is killed with all its children: a test that hangs fails."""


@pytest.fixture(scope="session")
def forked() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Python script as a command in a fork of this process, which has imported torch and ms-swift already.

    In place of `subprocess.run([sys.executable, script, *words])`, whose imports take longer than the run. What a fresh
    interpreter does is tested by other tests.
    """
    _import_all()

    def run(script: Path, *words: object, cwd: Path | None = None, **environment: str):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            argv = [str(script), *map(str, words)]
            process = _start(argv, (out.fileno(), err.fileno()), cwd, environment)
            process.join(_SECONDS)
            if process.is_alive():
                os.killpg(process.pid, signal.SIGKILL)
                process.join()
            texts = [file.seek(0) or file.read() for file in (out, err)]
            return subprocess.CompletedProcess(argv, process.exitcode, *texts)

    return run


@pytest.fixture
def forked_popen(tmp_path: Path) -> type:
    """A stand-in for `subprocess.Popen` that runs `[sys.executable, "-c", code, *words]` in a fork; see `forked`."""
    _import_all()

    class Popen:
        def __init__(self, command: list[str], *, stdout: IO[str], env: dict[str, str], **_: int) -> None:
            executable, option, code, *words = command
            assert (executable, option) == (sys.executable, "-c")
            script = tmp_path / "forked.py"
            script.write_text(code)
            self.process = _start([str(script), *words], (stdout.fileno(), stdout.fileno()), None, env)

        def poll(self) -> int | None:
            return self.process.exitcode

        def wait(self) -> None:
            self.process.join(_SECONDS)

        def terminate(self) -> None:
            self.process.terminate()

        @property
        def returncode(self) -> int | None:
            return self.process.exitcode

    return Popen


@cache
def _import_all() -> None:
    """Import what runs import and carry a tiny one out: what it imports, compiles and parses each fork would anew."""
    pytest.importorskip("swift")
    for name in (
        "deepspeed.runtime.zero.muon.muon_optimizer",
        "torch.distributed.launcher.api",
        "torch.utils.tensorboard",
    ):
        pytest.importorskip(name)
    from coord_trainer.config.run_config import check_run_config
    from coord_trainer.run import train_and_score

    sizes = {"hidden": 32, "heads": 4, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}
    config = {
        "data": {"markers": "obj", "shapes": {"train": 2, "heldout": 1}},
        "custom": {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
        "model": {"tiny": sizes},
        "training": {"tuner_type": "lora", "target_modules": ["all-linear"], "max_steps": 1, "report_to": []},
        "evaluation": {"max_new_tokens": 4, "decoding": [{"grammar": "none"}, {"grammar": "markers"}]},
        "run": {"threads": 1},
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        train_and_score(check_run_config(config, "the first run of this process"), Path(folder) / "run")
    gc.collect()
    gc.freeze()


def _start(
    argv: list[str], descriptors: tuple[int, int], cwd: Path | None, environment: dict[str, str]
) -> multiprocessing.context.ForkProcess:
    given = argv, cwd, environment, descriptors
    process = multiprocessing.get_context("fork").Process(target=_carry_out, args=given)
    process.start()
    return process


def _carry_out(argv: list[str], cwd: Path | None, environment: dict[str, str], descriptors: tuple[int, int]) -> None:
    os.setsid()
    for target, name, descriptor in zip((1, 2), ("stdout", "stderr"), descriptors, strict=True):
        os.dup2(descriptor, target)
        setattr(sys, name, open(target, "w", buffering=1, closefd=False))  # noqa: SIM115
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.default_int_handler if sent == signal.SIGINT else signal.SIG_DFL)
    os.chdir(cwd or ".")
    os.environ.update(environment)
    sys.argv, sys.path[:0] = argv, [str(Path(argv[0]).parent)]
    runpy.run_path(argv[0], run_name="__main__")
