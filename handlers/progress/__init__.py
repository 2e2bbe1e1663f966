"""How targets with transactions know what of a table they hold: marks, topics made anew, what is passed
over."""
