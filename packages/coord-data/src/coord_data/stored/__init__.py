"""Records of any number on disk: Arrow files that ranks map into memory, and the cache of checked records."""
