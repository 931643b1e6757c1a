"""Parses the text that a model generated into an `Answer`, independent of files and images."""
