"""Models of the papers, and what trains them."""
