"""Settings of every test in the workspace."""

from hypothesis import settings

# Machines are shared and noisy: how long an example takes says nothing about the code.
settings.register_profile("workspace", deadline=None)
settings.load_profile("workspace")
