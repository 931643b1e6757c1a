"""A release rehearsed in a temporary clone: bump, break, refuse; bump right, pass."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]


class Clone:
    """The working tree in a repository of their own, to commit and tag in."""

    def __init__(self, folder):
        self.folder = folder
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *words):
        identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *words], cwd=self.folder, check=True, capture_output=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Step")

    def edit(self, name, pattern, replacement):
        file = self.folder / name
        text, count = re.subn(pattern, replacement, file.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, f"{name} has no {pattern}"
        file.write_text(text)

    def bump(self, package, version):
        """What a person does for a release: the version and the changelog's head, committed."""
        self.edit(f"packages/{package}/pyproject.toml", '^version = ".*"', f'version = "{version}"')
        self.note(package, f"## [{version}] - 2030-01-02\n\n### Changed\n- Rehearsed.\n\n")
        self.commit()

    def note(self, package, section):
        """Put a section on top of the changelog."""
        self.edit(f"packages/{package}/CHANGELOG.md", r"^(?=## \[)", section)

    def tool(self, *words):
        command = [sys.executable, "tools/release.py", *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def check(self, package, *options):
        return self.tool("check", package, "--no-tests", *options)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A clone in which coord-codec 0.1.0 is released."""
    clone = Clone(tmp_path_factory.mktemp("clone"))
    for package in ("coord-codec", "coord-eval"):
        clone.edit(f"packages/{package}/pyproject.toml", '^version = ".*"', 'version = "0.1.0"')
        changelog = clone.folder / "packages" / package / "CHANGELOG.md"
        changelog.write_text("# Changelog\n\n## [0.1.0] - 2030-01-01\n\n### Added\n- All.\n")
    clone.commit()
    clone.git("tag", "coord-codec-v0.1.0")
    return clone


@pytest.fixture
def clone(released):
    """The released clone, back at its release after the test."""
    yield released
    tags = ["coord-codec-v0.1.1", "coord-codec-v1.0.0", "coord-codec-v0.3.0", "coord-codec-v2-draft"]
    subprocess.run(["git", "tag", "--delete", *tags], cwd=released.folder, capture_output=True, check=False)
    released.git("reset", "--quiet", "--hard", "coord-codec-v0.1.0")


def environment_without_network(folder):
    """A new environment with pip and what is installed here, but for our packages; its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    others, here = folder / "others", Path(sysconfig.get_paths()["purelib"])
    others.mkdir()
    for path in here.iterdir():
        if not re.match(r"_?_?(editable|coord)|pip\b", path.name) and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    for own in site.glob("setuptools*"):  # of Python 3.11's making, and too old for torch
        shutil.rmtree(own)
    (site / "others.pth").write_text(f"{others}\n")
    return folder / "venv" / "bin" / "python"


def rename_a_parameter(clone):
    clone.edit(
        "packages/coord-codec/src/coord_codec/tokens.py", r"^def int_to_token\(\w+", "def int_to_token(bin_number"
    )


def test_a_break_is_refused_until_the_version_says_so(clone):
    rename_a_parameter(clone)
    clone.bump("coord-codec", "0.1.1")
    code, told = clone.check("coord-codec")
    assert code == 1
    assert "coord_codec.tokens.int_to_token" in told
    assert "the version must be 1.0.0 or later" in told

    clone.edit("packages/coord-codec/CHANGELOG.md", r"\[0\.1\.1\]", "[1.0.0]")
    clone.edit("packages/coord-codec/pyproject.toml", '^version = ".*"', 'version = "1.0.0"')
    # The body still uses the old name; what is installed must work before it passes.
    clone.commit()
    code, told = clone.check("coord-codec")
    assert code == 1
    assert "installed alone" in told

    clone.git("checkout", "coord-codec-v0.1.0", "--", "packages/coord-codec/src")
    clone.edit("packages/coord-codec/src/coord_codec/__init__.py", r'^    "ints_to_tokens",\n', "")
    clone.commit()
    code, told = clone.check("coord-codec")
    assert code == 0, told
    assert "coord_codec.ints_to_tokens: no longer in __all__" in told
    assert "git tag -a coord-codec-v1.0.0" in told
    assert re.search(r"coord_codec-1\.0\.0-py3-none-any\.whl sha256 [0-9a-f]{64}", told)
    for dependant in ("coord-losses", "coord-adapter", "coord-eval", "coord-trainer", "coord-exporter"):
        assert f"{dependant} must follow: 'coord-codec<1,>=0.1' leaves out 1.0.0" in told

    clone.git("tag", "coord-codec-v1.0.0")
    clone.git("tag", "--force", "coord-codec-v2-draft")  # no release
    assert clone.check("coord-codec", "--tagged")[0] == 0
    code, told = clone.check("coord-eval")
    assert code == 1
    assert "leaves out 1.0.0, the version beside it" in told


def test_a_minor_version_is_taken_by_dependants_without_a_change_of_theirs(clone, tmp_path):
    index, python = tmp_path / "index", environment_without_network(tmp_path)
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "PYTHON"))}
    environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}

    def run(*words):
        done = subprocess.run([python, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    build = ["uv", "build", "--quiet", "--wheel", "--out-dir", str(index)]
    subprocess.run([*build, "--all-packages"], cwd=clone.folder, check=True)
    for version in ("0.2.0", "1.0.0"):
        clone.note("coord-eval", "## [Unreleased]\n\n### Added\n- Rehearsed.\n\n")
        code, told = clone.tool("prepare", "coord-eval", version)
        assert code == 0, told
        subprocess.run([*build, "--package", "coord-eval"], cwd=clone.folder, check=True)

    assert {path.name.split("-")[1] for path in index.glob("coord_eval-*")} == {"0.1.0", "0.2.0", "1.0.0"}
    run("-m", "pip", "install", "--quiet", "--no-compile", "coord-trainer", "coord-exporter")
    listed = json.loads(run("-m", "pip", "list", "--format", "json"))
    taken = {row["name"]: row["version"] for row in listed if row["name"].startswith("coord-")}
    names = "coord-codec", "coord-losses", "coord-adapter", "coord-trainer", "coord-exporter"
    assert taken == {"coord-eval": "0.2.0"} | dict.fromkeys(names, "0.1.0")

    # The trainer works with it: `inspect` decodes, parses, scores and draws through coord_eval.
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    record = {"image": "a.png", "width": 64, "height": 48, "objects": [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}]}
    (tmp_path / "instances.jsonl").write_text(json.dumps(record))
    run("-c", "from coord_trainer.cli import main; main()", "inspect", "instances.jsonl", "--out", "findings")
    assert (tmp_path / "findings" / "inspect.html").exists()
    where = run("-c", "import coord_eval, coord_trainer; print(coord_eval.__file__, coord_trainer.__file__)")
    assert where.count(str(tmp_path / "venv")) == 2


def test_version_tag_changelog_and_tree_must_agree(clone):
    assert clone.check("coord-codec", "--tagged")[0] == 0
    clone.edit("packages/coord-codec/pyproject.toml", '^version = ".*"', 'version = "0.1.1"')
    code, told = clone.check("coord-codec", "--tagged")
    assert code == 1
    assert "not committed: M packages/coord-codec/pyproject.toml" in told
    assert "this commit is tagged coord-codec-v0.1.0, and the version is 0.1.1" in told
    assert "CHANGELOG.md begins with [0.1.0]; expected '## [0.1.1] - YYYY-MM-DD'" in told

    clone.commit()
    clone.git("tag", "coord-codec-v0.3.0")
    code, told = clone.check("coord-codec")
    assert code == 1
    assert "this commit is tagged coord-codec-v0.3.0" in told

    clone.edit("packages/coord-codec/pyproject.toml", '^version = ".*"', 'version = "0.1.0"')
    clone.commit()
    code, told = clone.check("coord-codec")
    assert code == 1
    assert "coord-codec-v0.1.0 is on another commit" in told


def test_entries_left_under_unreleased_are_noticed(clone):
    clone.bump("coord-codec", "0.1.1")
    clone.edit("packages/coord-codec/CHANGELOG.md", r"^(## \[)", r"## [Unreleased]\n\n- Forgotten.\n\n\1")
    clone.commit()
    code, told = clone.check("coord-codec")
    assert code == 1
    assert "entries under [Unreleased]" in told


def test_prepare_writes_version_and_date_only_where_the_step_fits(clone):
    changelog, project = (clone.folder / "packages/coord-codec" / name for name in ("CHANGELOG.md", "pyproject.toml"))
    before = project.read_text()
    code, told = clone.tool("prepare", "coord-codec", "0.1.1")
    assert code == 1
    assert "no entries under [Unreleased]" in told

    clone.note("coord-codec", "## [Unreleased]\n\n### Fixed\n- Rehearsed.\n\n")
    rename_a_parameter(clone)
    code, told = clone.tool("prepare", "coord-codec", "0.2.0")
    assert code == 1
    assert "the version must be 1.0.0 or later" in told
    assert "[Unreleased]" in changelog.read_text()
    assert project.read_text() == before

    clone.git("checkout", "--", "packages/coord-codec/src")
    code, told = clone.tool("prepare", "coord-codec", "0.1.1", "--date", "2030-01-02")
    assert code == 0, told
    assert changelog.read_text().count("## [0.1.1] - 2030-01-02\n\n### Fixed\n- Rehearsed.\n\n## [0.1.0]") == 1
    assert project.read_text() == before.replace('version = "0.1.0"', 'version = "0.1.1"', 1)
    assert clone.tool("prepare", "coord-codec", "second")[0] == 2
    assert clone.tool("prepare", "coord-codec", "0.1.0")[0] == 1


def test_prepare_adds_entries_to_a_version_that_was_dated_and_never_tagged(clone):
    changelog = clone.folder / "packages/coord-eval/CHANGELOG.md"
    clone.note("coord-eval", "## [Unreleased]\n\n### Fixed\n- Mended.\n\n### Added\n- More,\n  at length.\n\n")
    clone.commit()
    code, told = clone.tool("prepare", "coord-eval", "0.1.0", "--date", "2030-01-02")
    assert code == 0, told
    entries = "### Added\n- All.\n- More,\n  at length.\n\n### Fixed\n- Mended.\n"
    assert changelog.read_text() == f"# Changelog\n\n## [0.1.0] - 2030-01-02\n\n{entries}"

    # A second time nothing is left but the date.
    assert clone.tool("prepare", "coord-eval", "0.1.0", "--date", "2030-01-03")[0] == 0
    assert changelog.read_text() == f"# Changelog\n\n## [0.1.0] - 2030-01-03\n\n{entries}"
    clone.note("coord-eval", "## [Unreleased]\n\n### Added\n- Again.\n\n")
    assert clone.tool("prepare", "coord-eval", "0.2.0")[0] == 0
    assert changelog.read_text().count("## [") == 2


@pytest.mark.parametrize(
    ("old", "new", "breaks", "added", "fault"),
    [
        ("0.1.0", "0.1.1", [], [], None),
        ("0.1.0", "0.1.1", [], ["x"], "0.2.0"),
        ("0.1.0", "0.2.0", [], ["x"], None),
        ("0.1.0", "0.2.0", ["x"], [], "1.0.0"),
        ("0.1.0", "1.0.0", ["x"], [], None),
        ("1.2.0", "1.2.1", [], [], None),
        ("1.2.0", "1.2.1", [], ["x"], "1.3.0"),
        ("1.2.0", "1.3.0", ["x"], [], "2.0.0"),
        ("1.2.0", "2.0.0", ["x"], ["x"], None),
        ("1.2.0", "1.2.0", [], [], "does not follow"),
        ("1.2.0", "1.1.9", [], [], "does not follow"),
    ],
)
def test_the_step_that_a_change_asks_for(monkeypatch, old, new, breaks, added, fault):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from api_changes import ApiChanges, bump_fault
    from packaging.version import Version

    told = bump_fault(Version(old), Version(new), ApiChanges(breaks, added))
    assert (told is None) if fault is None else fault in told
