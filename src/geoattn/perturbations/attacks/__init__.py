"""Perturbations that are computed against a model."""
