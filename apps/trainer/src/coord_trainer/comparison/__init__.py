"""Comparison: several configurations and seeds go in, one report on their runs comes out."""
