"""Verify: predictions against simulations at finite size."""
