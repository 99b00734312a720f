"""Tokens as particles on the sphere: flows, energies, stationary points, clusters, mean field."""
