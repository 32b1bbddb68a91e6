"""Case studies on the public API."""
