"""Settings of every test in the workspace."""

import os

from hypothesis import settings

# Two test workers on two cores: threads of one would only wait for those of the other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Machines are shared and noisy: how long an example takes says nothing about the code.
settings.register_profile("workspace", deadline=None)
settings.load_profile("workspace")
