"""The resolution is pinned without upload dates: an index that states none gives the same versions."""

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", re.MULTILINE)
NEWER = "99999.0"


def pins():
    constraints = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    return set(PIN.findall("\n".join(constraints)))


def add_wheel(index, name, version):
    """A wheel of metadata alone, listed on a page without dates."""
    page = index / name
    page.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(page / f"{stem}-py3-none-any.whl", "w") as wheel:
        for file, text in {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }.items():
            wheel.writestr(f"{stem}.dist-info/{file}", text)
    links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in page.glob("*.whl"))
    (page / "index.html").write_text(links)


def copy_of_the_workspace(folder):
    for path in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("apps/*/pyproject.toml")):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    for name, version in pins():
        add_wheel(folder, name, version)
        add_wheel(folder, name, NEWER)
    return folder


def resolve(workspace, index):
    words = ["uv", "lock", "--default-index", index.as_uri(), "--cache-dir", str(index / "cache")]
    return subprocess.run(words, cwd=workspace, capture_output=True, text=True, check=False)


def test_lock_on_an_index_without_dates_gives_the_committed_versions(tmp_path, index):
    workspace = copy_of_the_workspace(tmp_path)
    done = resolve(workspace, index)
    assert done.returncode == 0, done.stderr
    resolved = tomllib.loads((workspace / "uv.lock").read_text())["package"]
    found = {(p["name"], p["version"]) for p in resolved if "registry" in p["source"]}
    assert found and found <= pins(), found - pins()


def test_constraints_hold_every_version_of_the_hashed_lock():
    assert set(PIN.findall((ROOT / "requirements.lock").read_text())) <= pins()


def test_lock_by_date_fails_there(tmp_path, index):
    """Why the constraints are there: the former way of pinning."""
    workspace = copy_of_the_workspace(tmp_path)
    path = workspace / "pyproject.toml"
    text = re.sub(
        r"constraint-dependencies = \[\n.*?\]\n",
        'exclude-newer = "2026-11-20T00:00:00Z"\n',
        path.read_text(),
        flags=re.DOTALL,
    )
    path.write_text(text)
    done = resolve(workspace, index)
    assert done.returncode != 0 and "No solution found" in done.stderr
