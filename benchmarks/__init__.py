"""Speed of geoattn against its peers. `make bench` runs all of it and writes benchmarks/results/."""
