"""What a study is, what it writes, and what studies share."""
