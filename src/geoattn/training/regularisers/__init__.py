"""Regularisers: functions of attention that are added to the loss."""
