"""The paper's numerical statements, one file each: frozen settings, published values, a function that runs them."""
