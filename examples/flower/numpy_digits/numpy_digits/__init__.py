"""A Flower app: logistic regression on scikit-learn's digits."""
