"""What a source of annotations states: files, images with their objects, numbers, and how those are read."""
