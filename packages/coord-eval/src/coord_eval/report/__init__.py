"""Builds HTML reports: single files without external resources."""
