"""DictPFL."""
