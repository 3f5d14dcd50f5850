"""``shieldfl flower``: an app and a deployment of one's own, and what a node's operator does."""
