"""The metric of attention: distances and geodesics, steps of least movement, dissipation."""
