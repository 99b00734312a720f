"""From a profile to one HTML file that opens from disk, and to figures for papers."""
