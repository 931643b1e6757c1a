import sys
from pathlib import Path

# The tests share the simulated device beside them, and the reference of a kernel with those of coord-detect.
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "packages" / "coord-detect" / "tests" / "helpers")]
