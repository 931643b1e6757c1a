"""Takes a model or an endpoint and images; returns boxes in pixels, as objects or as a folder that can be continued."""
