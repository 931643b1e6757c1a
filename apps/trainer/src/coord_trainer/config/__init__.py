"""Configuration: YAML and `section.key=value` words go in, a checked and frozen `RunConfig` comes out."""
