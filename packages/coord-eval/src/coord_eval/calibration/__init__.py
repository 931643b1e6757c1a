"""Maps scores to probabilities."""
