"""Filters and smoothers on the state-space waist; nothing here has heard of a PDE."""
