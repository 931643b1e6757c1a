"""Computes the metrics of particular benchmarks: LVIS and RefCOCO."""
