"""The hypotheses of the paper's theorem as checked numbers; nothing here runs a filter."""
