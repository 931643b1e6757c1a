"""Finds faults in data: reads annotations and images, runs every check, and returns the findings."""
