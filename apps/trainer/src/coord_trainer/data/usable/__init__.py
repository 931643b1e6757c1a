"""A record goes in; the problem of its image, if any, and its objects of the wanted classes come out."""
