"""Reads COCO documents into instances, table rows and a list of problems."""
