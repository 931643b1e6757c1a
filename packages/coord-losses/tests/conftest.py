import sys
from pathlib import Path

# Test modules are imported by path; the batch they share stands beside them.
sys.path.insert(0, str(Path(__file__).parent))
