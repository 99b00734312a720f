"""Data that comes with geoattn."""
