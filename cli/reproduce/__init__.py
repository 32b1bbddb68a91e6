"""`clhist reproduce`: what a paper measured, measured on this device and drawn beside what was published."""
