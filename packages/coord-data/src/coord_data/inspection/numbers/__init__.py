"""Takes the box numbers of a set and its images, returns order, unit and offset of the boxes, and a correction."""
