"""Any run's log in, what is wrong with it and what to do first out."""
