"""Coefficients from readings: the objective of learning and its exact gradient."""
