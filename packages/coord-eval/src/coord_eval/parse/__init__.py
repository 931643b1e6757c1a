"""Takes the text that a model wrote, returns an `Answer`; knows no file and no image."""
