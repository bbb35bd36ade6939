"""Attention-indexed models at finite size: data, training, message passing, spectra, feasibility."""
