"""Measuring a device's profile."""
