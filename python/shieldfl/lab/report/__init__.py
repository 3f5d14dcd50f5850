"""Pages, pictures and files of figures: the same for runs, audits and fleets."""
