"""A release rehearsed in a temporary clone: bump, break, refuse; bump right, pass."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
        self.edit(
            f"packages/{package}/CHANGELOG.md",
            r"^(## \[)",
            rf"## [{version}] - 2030-01-02\n\n### Changed\n- Rehearsed.\n\n\1",
        )
        self.commit()

    def check(self, package, *options):
        command = [sys.executable, "tools/release.py", "check", package, "--no-tests", *options]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A clone in which coord-codec 0.1.0 is released."""
    clone = Clone(tmp_path_factory.mktemp("clone"))
    # Whatever is noted as unreleased belongs to this first release.
    clone.edit("packages/coord-codec/CHANGELOG.md", r"^## \[Unreleased\]", "## [0.1.0] - 2030-01-01")
    clone.edit("packages/coord-codec/pyproject.toml", '^version = ".*"', 'version = "0.1.0"')
    clone.commit()
    clone.git("tag", "coord-codec-v0.1.0")
    return clone


@pytest.fixture
def clone(released):
    """The released clone, back at its release after the test."""
    yield released
    tags = ["coord-codec-v0.1.1", "coord-codec-v0.2.0", "coord-codec-v0.3.0"]
    subprocess.run(["git", "tag", "--delete", *tags], cwd=released.folder, capture_output=True, check=False)
    released.git("reset", "--quiet", "--hard", "coord-codec-v0.1.0")


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
    assert "the version must be 0.2.0 or later" in told

    clone.edit("packages/coord-codec/CHANGELOG.md", r"\[0\.1\.1\]", "[0.2.0]")
    clone.edit("packages/coord-codec/pyproject.toml", '^version = ".*"', 'version = "0.2.0"')
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
    assert "git tag -a coord-codec-v0.2.0" in told
    assert re.search(r"coord_codec-0\.2\.0-py3-none-any\.whl sha256 [0-9a-f]{64}", told)
    for dependant in ("coord-losses", "coord-adapter", "coord-eval", "coord-trainer", "coord-exporter"):
        assert f"{dependant} must follow: 'coord-codec<0.2,>=0.1' leaves out 0.2.0" in told

    clone.git("tag", "coord-codec-v0.2.0")
    assert clone.check("coord-codec", "--tagged")[0] == 0
    clone.edit("packages/coord-eval/CHANGELOG.md", r"^## \[Unreleased\]", "## [0.1.0] - 2030-01-01")
    clone.commit()
    code, told = clone.check("coord-eval")
    assert code == 1
    assert "leaves out 0.2.0, the version beside it" in told


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


@pytest.mark.parametrize(
    ("old", "new", "breaks", "added", "fault"),
    [
        ("0.1.0", "0.1.1", [], ["x"], None),
        ("0.1.0", "0.1.1", ["x"], [], "0.2.0"),
        ("0.1.0", "0.2.0", ["x"], [], None),
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
