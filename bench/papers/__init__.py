"""Tables and figures of the papers, each in a file that says what theirs has and when ours agrees."""
