"""Runs, compares, attacks and predicts methods in one process: nothing outside of it needs it.

Methods and data enter, figures and pages leave. Read ``simulation/runner.py`` first.
"""
