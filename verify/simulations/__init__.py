"""Finite-size simulations of the task families, one per file, named as in derive.tasks."""
