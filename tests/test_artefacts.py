"""What is handed out: the same bytes twice, install lines that name all they need, figures that were measured."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[1]
PROJECTS = {
    tomllib.loads(file.read_text())["project"]["name"]: file.parent
    for file in [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("apps/*/pyproject.toml")]
}


def build(place, out, *options, **environ):
    command = ["uv", "build", "--quiet", "--all-packages", "--out-dir", str(out), *options]
    subprocess.run(command, cwd=place, env=os.environ | environ, check=True, umask=int(environ.get("UMASK", "022"), 8))
    files = sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")])
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.slow
def test_wheels_and_sdists_have_the_same_bytes_whoever_builds_them(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # Another place, order of creation, times, modes, umask and time zone.
    for name in sorted(filter(None, listed.split("\0")), reverse=True):
        if (ROOT / name).is_file():
            target = tmp_path / "copy" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
            target.chmod(0o600)
            os.utime(target, (1e9, 1e9))
    # From the source distribution, and directly from the tree, as by `pip install git+...`.
    here = build(ROOT, tmp_path / "here", "--wheel")
    there = build(tmp_path / "copy", tmp_path / "there", UMASK="077", TZ="Asia/Tokyo", SOURCE_DATE_EPOCH="1000000000")
    assert {name.partition("-")[0].replace("_", "-") for name in here} == PROJECTS.keys()
    assert here.items() <= there.items()


def ours_needed(name):
    """The members that a member requires, directly or through another, and itself."""
    project = tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text())["project"]
    required = {re.match(r"[\w-]+", text)[0] for text in project["dependencies"]} & set(PROJECTS)
    return {name}.union(*(ours_needed(found) for found in required))


@pytest.mark.parametrize("name", PROJECTS)
def test_install_line_of_a_readme_names_all_of_ours_that_pip_cannot_find(name):
    readme = (PROJECTS[name] / "README.md").read_text()
    named = dict(re.findall(r'"([\w-]+)(?:\[[\w,]+\])? @ git\+\$URL#subdirectory=([\w/-]+)"', readme))
    assert named == {found: PROJECTS[found].relative_to(ROOT).as_posix() for found in ours_needed(name)}


def test_pages_name_no_install_from_an_index_that_has_nothing():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("apps/*/README.md")]
    for page in [*pages, *(ROOT / "docs").rglob("*.md")]:
        assert not re.findall(r"pip install [\"']?coord-\w+(?! @)\b[^@\n]*$", page.read_text(), re.MULTILINE), page


FIGURE = re.compile(r"(?<![\w.])(?:\d+/\d+|(?:[±\u2212+] ?)?\d*\.?\d+(?:-\d*\.?\d+)?)(?![\w])")


def test_figures_of_the_readme_stand_in_the_sections_of_the_results_that_the_numbers_page_names():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", results, re.MULTILINE | re.DOTALL))
    named = dict(re.findall(r"^\| (.+?) \| (.+?) \|", (ROOT / "docs" / "numbers.md").read_text(), re.MULTILINE))
    table = (ROOT / "README.md").read_text().partition("| question | result |")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^-|].*?) \| (.*?) \|", table, re.MULTILINE))
    assert rows
    for claim, result in rows.items():
        section = sections.get(named[claim])
        assert section is not None or named[claim] == "none: a test", claim
        missing = set(FIGURE.findall(f"{claim} {result}")) - set(FIGURE.findall(section or f"{claim} {result}"))
        assert not missing, (claim, named[claim])
    prose = table.partition("\n\n")[2]
    assert set(FIGURE.findall(prose)) <= set(FIGURE.findall(results))
