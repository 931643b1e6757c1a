"""Views: one image shown to the model in several ways, whose answers are fused into one."""
