"""The package as a whole: light to import, nothing hard-coded, README true."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import coord_codec

ROOT = Path(__file__).parents[1]
PACKAGE = Path(coord_codec.__file__).parent  # as imported: the sources, or a wheel's
SOURCES = sorted(PACKAGE.rglob("*.py"))
OTHER_NUMBERS = {128, 180, 1e6, 8192}  # vertices, degrees, bytes
COUNT_PIXELS = {"grid.py", "boxes.py", "spans.py", "images.py", "box_transforms.py", "gallery.py"}
HEAVY = "torch", "numpy", "transformers", "pydantic", "pandas", "PIL"


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_import_loads_nothing_heavy_and_records_load_pydantic_and_no_more():
    loaded = f"; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    code = f"import sys\nfrom coord_codec import CoordVocab, encode_target, find_layout{loaded}\n"
    assert run(f"{code}from coord_codec import Instance, read_instances{loaded}") == "\npydantic\n"


def test_everything_public_is_there():
    assert sorted(coord_codec.__all__) == sorted(set(coord_codec.__all__))
    for name in coord_codec.__all__:
        assert getattr(coord_codec, name) is not None
        assert name in dir(coord_codec)
    with pytest.raises(AttributeError, match="no attribute 'Polygon'"):
        coord_codec.Polygon  # noqa: B018
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.slow
def test_only_the_grid_knows_its_numbers():
    """999, 1000 and the ids of any one vocabulary stand in no other module's code."""
    found = [
        (path.name, node.lineno, node.value)
        for path in SOURCES
        if path.name not in COUNT_PIXELS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) > 99
        if node.value not in OTHER_NUMBERS
    ]
    assert found == []


@pytest.mark.slow
def test_the_readme_example_prints_what_it_says():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\s+prints\s+```text\n(.*?)```", readme, re.DOTALL).groups()
    assert run(code) == output


def test_public_functions_and_classes_with_behaviour_have_examples():
    plain = {"InputError", "Order", "Style", "Form", "Reason", "Omission", "ObjectLayout", "SequenceLayout", "Problem"}
    plain |= {"InstanceFile", "AnnotationSet", "Category", "SmallBoxError"}
    for name in set(coord_codec.__all__) - plain:
        value = getattr(coord_codec, name)
        assert not callable(value) or ">>>" in value.__doc__, name
