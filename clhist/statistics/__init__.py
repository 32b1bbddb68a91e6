"""Statistics of the values of each bin or group: what they are made of, and how order statistics are selected."""
