"""Research: the paper's experiments and what others would use. Nothing but the commands that run them imports it."""
