"""`clhist report`: one HTML page about a device."""
