"""Studies of what the geometry of attention predicts about single samples."""
