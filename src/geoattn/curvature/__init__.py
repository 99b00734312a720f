"""Curvature of metric graphs with measures: exact, sampled, bounded, differentiable."""
