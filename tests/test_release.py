"""What a release needs, asked of a clone with tags: a version that fits, entries, released siblings, true ranges."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODEC, EVAL = Path("packages/coord-codec"), Path("packages/coord-eval")
CHANGELOG = "# Changelog\n\n## [0.1.0] - 2030-01-01\n\n### Added\n- All.\n"


class Clone:
    """The members of the working tree in a repository of their own, to commit and tag in."""

    def __init__(self, folder):
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "packages", "apps", "tools"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file() and "/tests/" not in name:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        self.git("init", "--quiet")

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

    def release(self, place, version, changelog=CHANGELOG):
        """Commit and tag a version of a member with its changelog."""
        self.edit(place / "pyproject.toml", '^version = ".*"', f'version = "{version}"')
        entries = f"## [{version}] - 2030-01-02\n\n### Added\n- More.\n\n" if version != "0.1.0" else ""
        (self.folder / place / "CHANGELOG.md").write_text(changelog.replace("## [0.1.0]", f"{entries}## [0.1.0]"))
        self.commit()
        self.git("tag", f"{place.name}-v{version}")

    def needs(self, member):
        command = [sys.executable, "tools/release.py", member]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == (1 if "needs:" in done.stdout else 0)
        return done.stdout.partition("needs:\n")[2], done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    clone = Clone(tmp_path_factory.mktemp("clone"))
    begin_at(clone, "0.1")  # the range of a first release, whatever it is today
    for place in (CODEC, EVAL):
        clone.release(place, "0.1.0")
    return clone


@pytest.fixture
def clone(released):
    """The clone at its release; tags of a test go with it."""
    yield released
    released.git("tag", "--delete", *TAGS) if (TAGS := later_tags(released)) else None
    released.git("reset", "--quiet", "--hard", "coord-eval-v0.1.0")


def later_tags(clone):
    tags = subprocess.run(["git", "tag"], cwd=clone.folder, capture_output=True, text=True, check=True).stdout.split()
    return [tag for tag in tags if not tag.endswith("-v0.1.0")]


def add_a_name(clone):
    """A function of coord-codec that is in no `__all__`, and coord-eval uses it."""
    with (clone.folder / CODEC / "src/coord_codec/tokens.py").open("a") as file:
        file.write('\n\ndef fresh(text: str) -> str:\n    """Return the text."""\n    return text\n')
    with (clone.folder / EVAL / "src/coord_eval/__init__.py").open("a") as file:
        file.write("\nfrom coord_codec.tokens import fresh\n")
    clone.commit()


def begin_at(clone, low):
    """Let coord-eval's ranges of coord-codec begin at a version."""
    file = clone.folder / EVAL / "pyproject.toml"
    file.write_text(re.sub(r'"coord-codec(\[\w+\])?>=[^"]+"', rf'"coord-codec\1>={low},<1"', file.read_text()))


def test_a_release_needs_nothing_where_all_agrees(clone):
    needs, told = clone.needs("coord-eval")
    assert needs == "" and "uv publish dist/coord-eval-v0.1.0/*" in told
    assert "0.1.0 is released from another commit" in clone.needs("coord-codec")[0]


def test_a_name_that_comes_below_the_top_level_asks_for_a_minor_version(clone):
    add_a_name(clone)
    clone.edit(CODEC / "pyproject.toml", '^version = ".*"', 'version = "0.1.1"')
    needs, told = clone.needs("coord-codec")
    assert "added coord_codec.tokens.fresh(text)" in told
    assert "uv version --package coord-codec 0.2.0" in needs
    assert "tree: not committed: M packages/coord-codec/pyproject.toml" in needs
    assert "expected '## [0.1.1] - YYYY-MM-DD'" in needs


@pytest.mark.parametrize(
    ("file", "pattern", "told"),
    [
        ("tokens.py", r"^def int_to_token\(", "coord_codec.tokens.int_to_token"),
        ("__init__.py", r'^    "int_to_token",\n', "coord_codec.int_to_token: no longer in __all__"),
        ("files.py", r"^def write_text\(", "coord_codec.files.write_text is gone, and coord-eval-v0.1.0 names it"),
    ],
)
def test_a_break_of_callers_or_of_released_siblings_asks_for_a_major_version(clone, file, pattern, told):
    clone.edit(CODEC / "src/coord_codec" / file, pattern, "def renamed(" if "def" in pattern else "")
    clone.commit()
    needs, output = clone.needs("coord-codec")
    assert told in output and "uv version --package coord-codec 1.0.0" in needs


def test_ranges_begin_at_the_released_versions_that_a_member_was_tested_with(clone):
    add_a_name(clone)
    assert "release coord-codec first, it has changed since coord-codec-v0.1.0" in clone.needs("coord-eval")[0]
    clone.release(CODEC, "0.2.0")
    assert "begin it there: >=0.2,<1" in clone.needs("coord-eval")[0]
    begin_at(clone, "0.2")
    clone.release(EVAL, "0.1.1")
    assert clone.needs("coord-eval")[0].count("ranges") == 0


def test_a_changelog_calls_released_only_what_has_a_tag(clone):
    clone.edit(CODEC / "CHANGELOG.md", r"^## \[0", "## [Unreleased]\n\n- Forgotten.\n\n## [0")
    assert "entries under [Unreleased]" in clone.needs("coord-codec")[0]
    clone.git("tag", "--delete", "coord-codec-v0.1.0")
    clone.edit(CODEC / "pyproject.toml", '^version = ".*"', 'version = "0.2.0"')
    clone.release(CODEC, "0.2.0")
    assert "[0.1.0] has a date and no tag coord-codec-v0.1.0" in clone.needs("coord-codec")[0]
    clone.git("tag", "coord-codec-v0.1.0", "coord-eval-v0.1.0~1")
