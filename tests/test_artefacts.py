"""What is handed out: the same bytes twice, install lines that name all they need, and what describes the whole."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

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
    here = build(ROOT, tmp_path / "here")
    there = build(tmp_path / "copy", tmp_path / "there", UMASK="077", TZ="Asia/Tokyo", SOURCE_DATE_EPOCH="1000000000")
    assert len(here) == 12
    assert here == there
    # A wheel is the same whether it comes from the source distribution or, as by `pip install git+...`, from the tree.
    direct = build(ROOT, tmp_path / "direct", "--wheel")
    assert direct.items() <= here.items() and len(direct) == 6


def ours_needed(name):
    """The members that a member requires, directly or through another, and itself."""
    project = tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text())["project"]
    required = {re.match(r"[\w-]+", text)[0] for text in project["dependencies"]} & set(PROJECTS)
    return {name}.union(*(ours_needed(found) for found in required))


@pytest.mark.parametrize("name", PROJECTS)
def test_install_line_of_a_readme_names_all_of_ours_that_pip_cannot_find(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from installed import install_lines

    (line,) = install_lines(PROJECTS[name] / "README.md")
    named = dict(re.findall(r'"([\w-]+)(?:\[\w+\])? @ git\+\$URL#subdirectory=([\w/-]+)"', line))
    assert named == {found: PROJECTS[found].relative_to(ROOT).as_posix() for found in ours_needed(name)}


def test_pages_name_no_install_from_an_index_that_has_nothing():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("apps/*/README.md")]
    for page in [*pages, *(ROOT / "docs").rglob("*.md")]:
        assert not re.findall(r"pip install [\"']?coord-\w+(?! @)\b[^@\n]*$", page.read_text(), re.MULTILINE), page


@pytest.mark.parametrize("name", PROJECTS)
def test_sibling_ranges_hold_until_the_next_major_version(name):
    project = tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text())["project"]
    for text in project["dependencies"]:
        if re.match(r"[\w-]+", text)[0] in PROJECTS:
            assert re.fullmatch(r"coord-\w+>=0\.\d+,<1", text)


@pytest.mark.parametrize("name", PROJECTS)
def test_public_names_broke_nothing_since_their_last_tag(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from api_changes import changes_since
    from members import last_tag, place_of, released_version, version_of

    tag = last_tag(name)
    if tag is None:
        pytest.skip(f"no tag {name}-v* among the ancestors of this commit, so nothing to compare with")
    changes = changes_since(tag, name.replace("-", "_"), f"{place_of(name)}/src", ROOT)
    assert version_of(name).major > released_version(name, tag).major or changes.breaks == []


def test_programs_say_what_they_do_without_torch():
    for module in ("coord_trainer", "coord_exporter", "coord_eval"):
        code = (
            f"import sys; sys.argv = ['x', '--help']\nfrom {module}.cli{'.main' * (module == 'coord_eval')} import main"
        )
        code += "\ntry: main()\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.endswith("False\n")


def test_citation_names_the_licence_and_a_version_with_its_date():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0" and cited["authors"] and cited["message"]
    assert cited["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    note = ROOT / "docs" / "releases" / f"{cited['version']}.md"
    assert note.read_text().startswith(f"# {cited['version']}")
    changelogs = [(folder / "CHANGELOG.md").read_text() for folder in PROJECTS.values()]
    assert any(f"## [{cited['version']}] - {cited['date-released']}" in text for text in changelogs)


@pytest.mark.parametrize("template", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md")), ids=lambda p: p.stem)
def test_issue_templates_ask_for_doctor_and_manifest(template):
    head, body = template.read_text().split("---\n")[1:]
    assert {"name", "about"} <= set(yaml.safe_load(head))
    assert "uv run apps/trainer doctor" in body and "manifest.json" in body


def test_numbers_page_has_each_claim_of_the_readme_and_a_section_for_it():
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", (ROOT / "docs" / "numbers.md").read_text(), re.MULTILINE)[1:]
    table = (ROOT / "README.md").read_text().partition("| question | result |")[2].partition("\n\n")[0]
    assert [claim for claim, _ in rows] == re.findall(r"^\| ([^-|].*?) \|", table, re.MULTILINE)
    headings = re.findall(r"^### (.+)$", (ROOT / "benchmarks" / "RESULTS.md").read_text(), re.MULTILINE)
    assert {section for _, section in rows} - {"none: a test"} <= set(headings)


FIGURE = re.compile(r"(?<![\w.])(?:\d+/\d+|(?:[±\u2212+] ?)?\d*\.?\d+(?:-\d*\.?\d+)?)(?![\w])")


def test_figures_of_the_readme_stand_in_the_results():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", results, re.MULTILINE | re.DOTALL))
    numbers = (ROOT / "docs" / "numbers.md").read_text()
    table = (ROOT / "README.md").read_text().partition("| question | result |")[2]
    rows = re.findall(r"^\| ([^-|].*?) \| (.*?) \|", table, re.MULTILINE)
    assert len(rows) > 6
    for claim, result in rows:
        section = re.search(rf"^\| {re.escape(claim)} \| (.+?) \|", numbers, re.MULTILINE)[1]
        if section != "none: a test":
            missing = set(FIGURE.findall(f"{claim} {result}")) - set(FIGURE.findall(sections[section]))
            assert not missing, (claim, section)
    prose = table.partition("\n\n")[2].partition("\n## ")[0]
    assert set(FIGURE.findall(prose)) <= set(FIGURE.findall(results))
