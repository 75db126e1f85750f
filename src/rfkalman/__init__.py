"""Random-feature Kalman filtering: a linear PDE and sensors in, an exact posterior field out."""
