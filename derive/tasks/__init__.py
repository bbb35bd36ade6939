"""The task families: data, target and student of each model, one per file."""
