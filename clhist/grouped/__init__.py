"""The computations of `clhist.group_by`: statistics in one sweep, and medians."""
