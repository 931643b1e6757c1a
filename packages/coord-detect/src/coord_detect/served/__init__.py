"""Servers that answer in place of a model in this process."""
