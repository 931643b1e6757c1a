"""How annotations are read: the source, its rows, the rules, and the set that comes out."""
