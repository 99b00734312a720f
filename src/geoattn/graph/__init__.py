"""From an attention matrix to a metric graph with a measure at each token."""
