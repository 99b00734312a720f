"""What perturbed inputs or a second training cost in accuracy, and the statistics to compare such costs."""
