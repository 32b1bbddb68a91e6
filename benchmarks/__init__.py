"""The suites of `clhist bench`, which runs them in a clone."""
