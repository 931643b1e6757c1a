"""What a release needs, asked of a small workspace with tags: entries, tagged siblings, true ranges."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [{}] - 2030-01-01\n\n- All.\n"


class Workspace:
    """A repository of two members, of which `b` requires `a`."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "release.py", folder / "tools")
        self.git("init", "--quiet")
        self.write("a", "0.1.0")
        self.write("b", "0.1.0", 'dependencies = ["a>=0.1,<1"]')

    def git(self, *words):
        identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *words], cwd=self.folder, check=True, capture_output=True)

    def write(self, name, version, rest="", source=""):
        """Commit a member at a version whose changelog announces it."""
        place = self.folder / "packages" / name
        (place / "src").mkdir(parents=True, exist_ok=True)
        (place / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "{version}"\n{rest}\n')
        (place / "CHANGELOG.md").write_text(CHANGELOG.format(version))
        (place / "src" / "code.py").write_text(source)
        self.commit()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Step")

    def needs(self, member):
        command = [sys.executable, "tools/release.py", member]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == (1 if "needs:" in done.stdout else 0)
        return done.stdout.partition("needs:\n")[2]


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


@pytest.mark.slow
def test_first_release_goes_in_the_order_of_dependence(workspace):
    assert workspace.needs("a") == ""
    assert "release a first, 0.1.0 has no tag a-v0.1.0" in workspace.needs("b")
    workspace.git("tag", "a-v0.1.0")
    assert workspace.needs("a") == workspace.needs("b") == ""


@pytest.mark.slow
def test_sibling_that_changed_since_its_tag_is_released_first_and_ranges_follow_it(workspace):
    workspace.git("tag", "a-v0.1.0")
    workspace.write("a", "0.1.0", source="fresh = 1")
    assert "released from another commit" in workspace.needs("a")
    assert "release a first, it has changed since a-v0.1.0" in workspace.needs("b")
    workspace.write("a", "0.2.0", source="fresh = 1")
    workspace.git("tag", "a-v0.2.0")
    assert "begin it there: >=0.2,<1" in workspace.needs("b")


@pytest.mark.slow
def test_changelog_announces_the_version_and_the_tree_is_committed(workspace):
    file = workspace.folder / "packages" / "a" / "CHANGELOG.md"
    file.write_text("# Changelog\n\n## [Unreleased]\n\n- Forgotten.\n")
    needs = workspace.needs("a")
    assert "tree: not committed: M packages/a/CHANGELOG.md" in needs
    assert "entries under [Unreleased]" in needs and "expected '## [0.1.0] - YYYY-MM-DD'" in needs
