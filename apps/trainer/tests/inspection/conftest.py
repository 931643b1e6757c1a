"""The planted faults of coord-data's tests, which the trainer's commands find as well."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "packages" / "coord-data" / "tests" / "helpers"))
