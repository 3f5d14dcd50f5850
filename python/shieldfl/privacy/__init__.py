"""Differential privacy: clipping, noise, and the accounting of what was spent.

Vectors enter and leave with noise; events enter, an epsilon leaves. Read ``noise.py`` first, then
``book.py``.
"""
