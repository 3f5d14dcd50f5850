from methods.keys_made_once import keys_made_once  # noqa: F401
