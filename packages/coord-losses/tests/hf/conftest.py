import sys
from pathlib import Path

# Test modules and worker processes share the tiny models beside them.
sys.path.insert(0, str(Path(__file__).parent))
