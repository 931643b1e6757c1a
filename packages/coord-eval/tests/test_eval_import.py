"""The package is light: importing it, and even scoring with it, loads no deep learning library."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "pandas", "matplotlib", "PIL", "pycocotools")


@pytest.mark.parametrize("module", ["coord_eval", "coord_eval.cli"])
def test_importing_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_scoring_loads_no_torch():
    code = (
        "import sys\n"
        "from coord_codec import Instance\n"
        "from coord_eval import oracle_predictions, score\n"
        "truth = [Instance(image='a.jpg', image_id=1, width=9, height=9,"
        " objects=[{'desc': 'cat', 'bbox': [.1, .1, .5, .5]}])]\n"
        "print(round(score(truth, oracle_predictions(truth)).coco['AP'], 9))\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1.0", "[]"]
