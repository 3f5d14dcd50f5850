"""Published attacks on what a party holds of clients' updates or of the final model.

An observed update enters, labels, samples or membership leave. Read ``labels.py`` first.
"""
