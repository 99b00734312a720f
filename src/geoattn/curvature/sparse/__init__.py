"""Curvature of sparse graphs: time and memory follow edges and degrees."""
