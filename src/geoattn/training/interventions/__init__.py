"""Interventions: changes of attention while a model runs."""
