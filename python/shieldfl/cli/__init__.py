"""The command line: it parses, calls the library and prints.

A command's arguments enter; text, files and an exit code leave. Read ``main.py`` first, then the command's
own file.
"""
