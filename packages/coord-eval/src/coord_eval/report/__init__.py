"""Builds HTML reports: single files without scripts or external resources."""
