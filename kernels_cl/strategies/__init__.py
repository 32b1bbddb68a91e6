"""Mako templates of the published strategies; clhist.strategies runs them."""
