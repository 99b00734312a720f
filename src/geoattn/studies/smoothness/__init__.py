"""Studies of the smoothness paper."""
