"""Studies of the mean-field paper."""
