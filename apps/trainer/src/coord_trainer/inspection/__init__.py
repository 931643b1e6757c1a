"""Takes annotations with their images, returns findings: the faults of the data, with evidence and a correction."""
