"""What reports share: style of figures, quantities as text, pages."""
