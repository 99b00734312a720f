"""One tidy table per model: lenses over layers, heads and samples, streamed, with intervals."""
