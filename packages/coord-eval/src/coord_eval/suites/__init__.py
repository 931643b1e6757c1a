"""Takes the ground truth and predictions of a benchmark, returns its own metrics."""
