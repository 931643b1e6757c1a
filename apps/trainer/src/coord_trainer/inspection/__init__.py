"""Takes annotations with their images, returns findings: what is wrong with the data, with evidence and its cure."""
