"""Annotation files of labelling tools, for records of boxes and shapes: pre-annotations for a person to correct."""
