"""What reports of runs and of fleets share: figures' style, quantities as text, pages, files."""
