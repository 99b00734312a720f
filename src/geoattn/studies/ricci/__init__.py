"""Studies of the Ricci paper at its own scale."""
