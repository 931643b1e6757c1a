"""Data: annotations and images (or drawn shapes) go in, encoded samples and their batches come out."""
