"""Compares runs over the same images."""
