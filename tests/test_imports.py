"""Who imports whom, and what a package loads: one direction, no circles, nothing heavy before it is needed."""

import ast
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import tomllib

pytestmark = pytest.mark.slow  # all source files are parsed, or programs started
ROOT = Path(__file__).parents[1]
MEMBERS = {
    package.name: tomllib.loads((package.parents[1] / "pyproject.toml").read_text())["project"]
    for package in sorted([*ROOT.glob("packages/*/src/*"), *ROOT.glob("apps/*/src/*")])
    if (package / "__init__.py").exists()
}
"""The table `project` of each member by the name of its package."""

FOLDERS = {
    path.name: path for path in [*ROOT.glob("packages/*/src/*"), *ROOT.glob("apps/*/src/*")] if path.name in MEMBERS
}
APPS = {name for name, folder in FOLDERS.items() if folder.parents[2].name == "apps"}
SOURCES = {
    ".".join(file.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__"): file
    for folder in FOLDERS.values()
    for file in folder.rglob("*.py")
}
HEAVY = (
    "torch",
    "transformers",
    "swift",
    "peft",
    "numpy",
    "pycocotools",
    "deepspeed",
    "pydantic",
    "pandas",
    "matplotlib",
    "PIL",
)


@cache
def parsed(path):
    return ast.parse(path.read_text())


@cache
def imported(path):
    """The modules that a file imports anywhere, but for type checkers alone."""
    return set(imports_in(path))


def imports_in(path):
    tree = parsed(path)
    typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"]
    passed_over = {id(inner) for block in typing for inner in ast.walk(block)}
    for node in (node for node in ast.walk(tree) if id(node) not in passed_over):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in SOURCES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_two_classes_have_one_name():
    """But for those of one file alone, which begin with an underscore."""
    places = {}
    for module, path in SOURCES.items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


@cache
def graph_of_files():
    """The modules that each module imports; no `__init__.py`, which hands out names of the modules below it."""
    return {
        name: {target for target in imported(path) if target in SOURCES and target != name}
        for name, path in SOURCES.items()
        if path.name != "__init__.py"
    }


def circles(graph):
    """The nodes that can be reached from themselves."""

    def reach(node, seen):
        for target in graph.get(node, set()) - seen:
            seen.add(target)
            reach(target, seen)
        return seen

    return {node for node in graph if node in reach(node, set())}


@pytest.mark.parametrize("package", MEMBERS)
def test_packages_import_only_what_lies_below_them(package):
    """Codec below the four, these below detect, that below the trainer; each arrow is a requirement or an extra."""
    extras = MEMBERS[package].get("optional-dependencies", {}).values()
    lines = [*MEMBERS[package]["dependencies"], *(line for lines in extras for line in lines)]
    required = {re.match(r"[\w-]+", text)[0].replace("-", "_") for text in lines} - {package}
    four = MEMBERS.keys() - APPS - {"coord_codec", "coord_detect"}
    below = {"coord_codec": set(), "coord_detect": {"coord_codec", *four}, "coord_trainer": MEMBERS.keys() - APPS}
    below["coord_exporter"] = {"coord_codec", *four}
    below |= {name: {"coord_codec"} for name in four}
    found = {
        target.partition(".")[0] for n, f in SOURCES.items() if n.split(".")[0] == package for target in imported(f)
    }
    assert (found & MEMBERS.keys()) - {package} <= required & MEMBERS.keys() <= below[package]


def test_files_import_each_other_in_no_circle():
    assert circles(graph_of_files()) == set()


def beside(name, target):
    """The parts (files or folders) of their nearest common folder in which two modules lie."""
    parts, others = name.split("."), target.split(".")
    depth = 1
    while parts[:depth] == others[:depth] and depth < min(len(parts), len(others)):
        depth += 1
    return ".".join(parts[:depth]), ".".join(others[:depth])


def test_folders_import_each_other_in_no_circle():
    """Neither with all that lies below them (beside `training`, `answers.speed` counts as `answers`) nor without."""
    place = {name: folder if "." in (folder := name.rpartition(".")[0]) else name for name in graph_of_files()}
    arrows = [(name, target) for name, targets in graph_of_files().items() for target in targets]
    whole = [beside(name, target) for name, target in arrows]
    alone = [(place[name], place[target]) for name, target in arrows if target in place]
    for pairs in (whole, alone):
        graph = {}
        for one, other in pairs:
            graph.setdefault(one, set()).update({other} - {one})
        assert circles(graph) == set()


def test_only_the_folder_swift_imports_ms_swift():
    importing = {name for name, path in SOURCES.items() if any(m.split(".")[0] == "swift" for m in imported(path))}
    assert importing and all(name.startswith("coord_trainer.swift") for name in importing)


def test_what_lies_above_uses_only_what_the_evaluation_package_makes_public():
    above = {*APPS, "coord_detect"}
    used = {target for name, path in SOURCES.items() if name.split(".")[0] in above for target in imported(path)}
    assert {name for name in used if name.startswith("coord_eval")} <= {
        "coord_eval",
        "coord_eval.diagnosis",
        "coord_eval.html",
        "coord_eval.labelling",
        "coord_eval.review",
        "coord_eval.rewards",
    }


LOSSES = {"torch", "numpy", "pydantic"}
LOADED = {"coord_exporter": {"pydantic"}, "coord_losses": LOSSES, "coord_losses.hf": LOSSES}
"""What a package loads when it is imported; no other package loads any of it."""


def test_importing_a_package_loads_no_more_than_it_promises():
    """One after the other in one process, first those that promise to load nothing."""
    names = [*MEMBERS, "coord_eval.cli.main", "coord_losses.hf", "coord_detect.console"]
    names.sort(key=lambda name: len(LOADED.get(name, ())))
    code = f"import sys\nfor name in {names!r}: __import__(name); print(*[m for m in {HEAVY!r} if m in sys.modules])"
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    loaded = {name: set(line.split()) for name, line in zip(names, lines, strict=False)}
    assert loaded == {name: LOADED.get(name, set()) for name in names}


def test_records_of_large_files_import_all_of_arrow_that_they_use():
    """Training on large files reads them before any library that imports `pyarrow.compute` too."""
    code = "import coord_data.records as records; print(records.pa.compute.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "pyarrow.compute\n", done.stderr


PROGRAMS = {name: entry for member in MEMBERS.values() for name, entry in member.get("scripts", {}).items()}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_say_what_they_do_without_torch(program):
    module, _, function = PROGRAMS[program].partition(":")
    code = f"import sys; sys.argv = ['x', '--help']\nfrom {module} import {function} as main\n"
    code += "try: main()\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize("app", ["trainer", "exporter"])
def test_interrupt_while_an_app_is_imported_prints_no_traceback(app, monkeypatch):
    class Interrupted(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    name = f"coord_{app}.cli"
    monkeypatch.setitem(sys.modules, name, Interrupted(name))
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "apps" / app), run_name="__main__")
    assert stopped.value.code == 130


def in_a_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_what_answers_needs_nothing_of_training():
    """All modules of coord-detect, torch and transformers with them."""
    names = [name for name in SOURCES if name.startswith("coord_detect") and not name.endswith("__main__")]
    code = f"import sys\nfor name in {names!r}: __import__(name)\nprint(*sys.modules)"
    loaded = {name.partition(".")[0] for name in in_a_process(code)}
    assert "torch" in loaded and loaded.isdisjoint(
        ("swift", "deepspeed", "trl", "datasets", "coord_trainer", "coord_losses")
    )


CLIENT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "safetensors", "llguidance", "peft", "coord_adapter"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def test_client_of_servers_answers_without_torch_and_a_model_names_its_extra(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    code = (
        CLIENT
        + f"""
import json, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from PIL import Image
from coord_codec import InputError
from coord_detect import Detector, predict

class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        box = "".join(f"<|coord_{{k}}|>" for k in (100, 200, 500, 900))
        text = f"<|object_ref_start|>cat<|object_ref_end|><|box_start|>{{box}}<|box_end|>"
        body = json.dumps({{"choices": [{{"message": {{"content": text}}, "finish_reason": "stop"}}]}}).encode()
        self.send_response(200), self.send_header("Content-Length", str(len(body))), self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass

server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{{server.server_port}}/v1"
Image.new("RGB", (200, 100)).save({str(tmp_path / "a.png")!r})
answered = predict(None, {str(tmp_path / "a.png")!r}, {str(tmp_path / "out")!r}, endpoints=[url], served_name="m")
print("BOXES", *answered.records[0]["objects"][0]["bbox_xyxy"])
asked = Detector(url, name="m").asking(labels=["dog"])
print("KEPT", len(asked.predict(Image.new("RGB", (200, 100)))))
try:
    Detector({str(tmp_path)!r})
except InputError as error:
    print("TOLD", error)
"""
    )
    words = " ".join(in_a_process(code))
    assert "BOXES 20.0 20.0 100.0 90.0" in words and "KEPT 0" in words
    assert "TOLD" in words and words.endswith("pip install 'coord-detect[model]'")
