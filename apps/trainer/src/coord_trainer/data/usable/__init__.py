"""A record goes in; whether its image can be used, and which of its objects are wanted, comes out."""
