"""Ours and other libraries on the same values, in one process and one run.

Read ``comparison.py`` first: the cases of whole updates and of Paillier. ``measurement.py`` times one; ``own.py`` and
``others.py`` are what is timed. TenSEAL, Flower, phe and HEU are measured where they are installed.
"""
