"""``python -m shieldfl`` is the command ``shieldfl``."""

from shieldfl.cli.main import main

if __name__ == "__main__":
    main()
