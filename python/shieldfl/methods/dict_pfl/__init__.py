"""DictPFL: tables of a dictionary are trained, pruned and encrypted. Read ``method.py`` first."""
