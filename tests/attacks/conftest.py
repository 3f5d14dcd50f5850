from authority.conftest import path  # noqa: F401
from methods.keys_made_once import keys_made_once  # noqa: F401
