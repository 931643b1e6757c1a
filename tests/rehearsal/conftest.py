import sys
from pathlib import Path

# The tests share the simulated device beside them.
sys.path.insert(0, str(Path(__file__).parent))
