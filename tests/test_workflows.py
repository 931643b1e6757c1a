"""The hosting site's workflows: audited, pinned, and a bill of materials in a wheel that still installs."""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("tool", [["actionlint", *WORKFLOWS], ["zizmor", "--offline", ROOT / ".github"]])
def test_audits_of_the_workflows_find_nothing(tool):
    command = [Path(sys.executable).with_name(tool[0]), *tool[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_every_action_is_a_commit_with_its_version(file):
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action) for action in used)


@pytest.mark.slow
def test_bill_of_materials_lists_the_requirements_and_the_wheel_is_still_valid(tmp_path):
    build = ["uv", "build", "--quiet", "--wheel", "--package", "coord-codec", "--out-dir", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    digests = []
    for _ in range(2):
        subprocess.run([sys.executable, ROOT / "tools" / "bill.py", wheel], check=True)
        digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert digests[0] == digests[1]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/sboms/coord-codec.cdx.json")]
        bill = json.loads(archive.read(name))
    assert bill["metadata"]["component"]["name"] == "coord-codec"
    assert "pydantic" in {component["name"] for component in bill["components"]}
    assert "http" not in json.dumps(bill)
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "site", wheel]
    subprocess.run(install, check=True)
    assert list((tmp_path / "site").glob("*.dist-info/sboms/*.json"))
