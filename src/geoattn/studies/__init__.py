"""Studies: one file per figure or table of the papers."""
