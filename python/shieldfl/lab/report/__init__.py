"""Pages, pictures and files of figures: the same for runs, audits and fleets.

Results enter, files leave. Read ``page.py`` first.
"""
