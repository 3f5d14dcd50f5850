"""Methods in which all clients encrypt the positions of one mask that they agreed on."""
