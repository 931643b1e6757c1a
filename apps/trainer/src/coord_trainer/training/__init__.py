"""What a training step computes besides the model: head on the supervised rows, metrics, profile."""
