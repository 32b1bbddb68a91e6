"""What `clhist.group_by` computes: statistics in one sweep, and medians."""
