"""COCO files go in; instances, the rows they were made of and a list of what was left out come out."""
