"""Rounds of a fleet, measured: a process for each client, its processor and link held to a share."""
