"""The density of infinitely many tokens: the continuity equation on the circle and on the 2-sphere."""
