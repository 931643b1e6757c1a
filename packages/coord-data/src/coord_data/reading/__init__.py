"""How annotations are read: the rules, the classes, and the checked set of images that comes out."""
