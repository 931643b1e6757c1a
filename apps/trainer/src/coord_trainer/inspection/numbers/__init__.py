"""What the numbers of a set mean, and by which line they are rewritten as their format has them."""
