"""What every method is made of: plan, public set-up, steps of the three roles, reports."""
