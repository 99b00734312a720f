"""Eigenvalues of attention, the inequalities that bound them, and what follows for depth and training."""
