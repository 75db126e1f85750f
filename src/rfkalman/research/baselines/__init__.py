"""What others would use for the same job: grids, distances, collocation, reduced bases."""
