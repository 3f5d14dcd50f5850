"""A Flower app: a small network on scikit-learn's digits."""
