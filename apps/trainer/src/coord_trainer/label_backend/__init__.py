"""An ML backend of Label Studio over a `Detector`: pre-annotates the images of its tasks."""
