"""The documentation: figures drawn by the code they show, every public name, and guides that run."""

import ast
import doctest
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "guides"
NAMED_FILE = re.compile(r' title="(?P<name>[\w-]+\.(py|yaml))"')
FENCE = re.compile(
    r"^```(?P<kind>bash|python|yaml)(?P<title> title=[^\n]*)?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("name", ["soft-targets", "wasserstein", "gate", "giou", "quantisation"])
def test_figures_are_what_the_code_draws_today(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "figures"))
    drawn = importlib.import_module("draw").PICTURES[name]()
    kept = (ROOT / "docs" / "figures" / f"{name}.svg").read_text()
    number = re.compile(r"-?\d+\.\d+|(?<= )-?\d+")
    assert number.sub("#", drawn) == number.sub("#", kept)
    # A tenth of a pixel may fall to either side on another processor.
    ours, theirs = ([float(found) for found in number.findall(text)] for text in (drawn, kept))
    assert ours == pytest.approx(theirs, abs=0.11)


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(ROOT.glob("apps/*/src/*/__init__.py")), ids=lambda path: path.parent.name)
def test_examples_of_docstrings_run(package):
    """Those of the packages are run by their own tests."""
    for path in sorted(package.parent.rglob("*.py")):
        if ">>> " in path.read_text():
            name = ".".join(path.relative_to(package.parents[1]).with_suffix("").parts).removesuffix(".__init__")
            assert doctest.testmod(importlib.import_module(name)).failed == 0, path


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("package", ["codec", "data", "losses", "adapter", "eval"])
def test_every_public_name_is_in_the_reference(site, package):
    page = (site / "reference" / f"{package}.html").read_text()
    headings = set(re.findall(r'<h[23] id="coord_[\w.]*\.(\w+)"', page))
    module = importlib.import_module(f"coord_{package}")
    assert set(module.__all__) - headings == set()


def test_pages_import_public_names_alone():
    """A name is public where the module that it is imported from lists it in `__all__`."""
    private = []
    for page, code in python_on_pages():
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.ImportFrom) or str(node.module).partition(".")[0] not in PACKAGES:
                continue
            public = listed_by(node.module)
            private += [f"{page}: {node.module}.{name.name}" for name in node.names if name.name not in public]
    assert private == []


def python_on_pages():
    """Yield the name and the Python of each page's blocks, and of each notebook's cells."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/*/README.md"), *ROOT.glob("docs/**/*.md")]:
        for block in FENCE.finditer(page.read_text()):
            if block["kind"] == "python":
                yield page.name, block["text"]
    for notebook in ROOT.glob("docs/**/*.ipynb"):
        for cell in json.loads(notebook.read_text())["cells"]:
            if cell["cell_type"] == "code":
                yield notebook.name, "".join(cell["source"])


TERMS_OF_THE_FIELD = {
    "annotations": ("COCO", "YOLO"),
    "detect": ("inference", "test-time augmentation", "TTA"),
    "evaluation": ("mAP", "true positive", "false positive", "false negative"),
    "export": ("merge_and_unload", "LoRA"),
    "faster": ("speculative decoding",),
    "groups": ("ablation", "GIoU"),
    "own-data": ("fine-tuning", "inference"),
    "review": ("Label errors", "label noise", "confident learning"),
    "rewards": ("Reinforcement learning", "GRPO"),
    "shapes": ("segmentation", "oriented bounding boxes", "keypoints"),
}
"""Words that a reader searches for, which the first paragraph of a guide has beside ours."""


@pytest.mark.parametrize("name", TERMS_OF_THE_FIELD)
def test_first_paragraph_of_a_guide_has_the_terms_of_the_field(name):
    first = " ".join((GUIDES / f"{name}.md").read_text().split("\n\n")[1].split())
    assert [term for term in TERMS_OF_THE_FIELD[name] if term not in first] == []


@pytest.mark.parametrize(
    "term", ["test-time augmentation", "true and false positives", "label errors", "speculative decoding"]
)
def test_index_and_help_have_the_terms_of_the_field(term):
    """Help texts are docstrings and literals of the command lines' sources, and of the settings they stand for."""
    assert term in (ROOT / "docs" / "index.md").read_text()
    sources = [
        path.read_text() for path in [*ROOT.glob("*/*/src/*/cli/*.py"), *ROOT.glob("*/*/src/*/settings/sections.py")]
    ]
    assert any(term in re.sub(r'"\n\s+"', "", text) for text in sources)


PACKAGES = {path.parent.name: path.parent for path in ROOT.glob("*/*/src/*/__init__.py")}


def listed_by(module):
    """Return the names in the `__all__` of a module's source; none where there is no such module."""
    package, *inner = module.split(".")
    place = PACKAGES[package].joinpath(*inner)
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    for node in ast.parse(source.read_text()).body if source.is_file() else ():
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return ()


@pytest.mark.slow
def test_reference_of_config_keys_is_what_the_command_prints():
    command = [sys.executable, str(ROOT / "apps/trainer"), "config", "--markdown"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs/reference/config.md").read_text() == printed


@pytest.mark.slow
def test_pages_fetch_nothing(site):
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]*|//[^"]*)"', page.read_text())
        assert fetched == [], page


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """The files that the guides use: images, annotations, answers."""
    from drawn_coco import write_coco

    folder = tmp_path_factory.mktemp("guides")
    (folder / "images").mkdir()
    (folder / "configs").symlink_to(ROOT / "configs")
    answers = []
    for instance in write_coco(folder / "images", folder / "instances.json", "train", 6):
        said = [
            {"bbox_2d": [round(999 * side) for side in found.bbox], "label": found.desc} for found in instance.objects
        ]
        answers.append(json.dumps({"image_id": instance.image_id, "text": json.dumps(said), "finish_reason": "stop"}))
    for name in ("predictions.jsonl", "qwen.jsonl", "other.jsonl"):
        (folder / name).write_text("\n".join(answers))
    return folder


def run_command(command, folder, forked):
    """Run a command line as it is typed, but by this environment's programs instead of through uv."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    assert words[:2] == ["uv", "run"], command
    program = ROOT / words[2] if words[2].startswith("apps/") else Path(sys.executable).with_name(words[2])
    return forked(program, *words[3:], cwd=folder)


def run_guide(name, folder, forked):
    """Run all of a guide in order, but for commands whose title says how long they take; write files that it names."""
    for block in FENCE.finditer((GUIDES / name).read_text()):
        if file := NAMED_FILE.fullmatch(block["title"] or ""):
            (folder / file["name"]).write_text(block["text"])
        if block["title"] or block["kind"] == "yaml":
            continue
        if block["kind"] == "python":
            (folder / "block.py").write_text(block["text"])
            runs = {block["text"]: forked(folder / "block.py", cwd=folder)}
        else:
            lines = re.split(r"(?<!\\)\n", block["text"].strip())
            runs = {line: run_command(line, folder, forked) for line in lines}
        for command, done in runs.items():
            assert done.returncode == 0, f"{name}: {command}\n{done.stdout}{done.stderr}"


TOGETHER = ("adapter.md", "export.md")
"""Guides that go on with what the one before has left."""


@pytest.mark.slow
@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", sorted({path.name for path in GUIDES.glob("*.md")} - {*TOGETHER}))
def test_what_a_guide_says_runs(name, workplace, forked):
    run_guide(name, workplace, forked)


@pytest.mark.slow
def test_tables_are_those_of_the_rows_in_the_code():
    """In a process of its own, since other tests register rows."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/tables.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "findings").glob("*.sh")), ids=lambda path: path.stem)
def test_finding_installs_pinned_packages_in_a_temporary_folder_without_our_code(path):
    text = path.read_text()
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in text
    assert "mktemp -d" in text
    assert re.search(r"[\w.-]+==\d", text)
    assert not re.search(r"coord_(codec|data|losses|adapter|eval|trainer|exporter)", text)
    assert text.splitlines()[1].startswith("# "), "the second line begins the comment that the page of findings shows"


@pytest.mark.slow
def test_the_adapter_of_one_guide_is_exported_by_the_next(tmp_path, forked):
    for name in TOGETHER:
        run_guide(name, tmp_path, forked)
    assert (tmp_path / "merged" / "export.json").exists()


@pytest.mark.slow
def test_file_of_the_gpu_guide_says_what_its_command_does(tmp_path, monkeypatch):
    """Several GPUs take the settings from a file that one GPU took from the command line."""
    from coord_trainer.config.run_config import load_run_config

    monkeypatch.chdir(ROOT)
    guide = (GUIDES / "gpu.md").read_text()
    ((name, text),) = re.findall(r'^```yaml title="([\w.]+)"\n(.*?)^```$', guide, re.DOTALL | re.MULTILINE)
    (tmp_path / name).write_text(text)
    typed = (shlex.split(command.replace("\\\n", " "), comments=True) for command in guide_commands(guide))
    train = next(words for words in typed if "run.dir=runs/my" in words)
    assert load_run_config(tmp_path / name, []) == load_run_config(Path("configs/dlora/coord_offset.yaml"), train[6:])
    assert f"train -c {name} " in guide


def guide_commands(guide):
    """The commands of one line each of a guide's blocks."""
    blocks = (block["text"] for block in FENCE.finditer(guide) if block["kind"] == "bash")
    return [line for text in blocks for line in re.split(r"(?<!\\)\n", text.strip()) if line.startswith("uv run apps")]
