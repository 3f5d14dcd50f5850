"""Runs, compares, attacks and predicts methods in one process: nothing outside of it needs it.

Read ``simulation/runner.py`` first.
"""
