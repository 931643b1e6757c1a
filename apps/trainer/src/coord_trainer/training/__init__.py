"""Parts of a training step besides the model: the head on supervised rows, metrics, profile, interruption."""
