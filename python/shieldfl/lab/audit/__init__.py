"""Attacks on what parties of a federation really receive, and what they get beside chance."""
