"""Published methods of protecting updates, behind one interface: pure local steps, one role each."""
