"""Where the time of a round goes, by stage."""
