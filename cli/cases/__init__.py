"""The commands of the case studies."""
