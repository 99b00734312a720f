"""Run store: trials with results that are written once, on one machine or many."""
