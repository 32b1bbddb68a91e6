"""`clhist bench`: its suites."""
