"""Templates of gradient boosting."""
