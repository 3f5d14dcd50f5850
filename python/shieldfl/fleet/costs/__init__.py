"""What a device takes for each step, measured or taken from papers."""
