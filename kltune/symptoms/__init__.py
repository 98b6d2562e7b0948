"""Rules that see from a run's curves what is wrong with it. Pure; guards and ``kltune diagnose`` share them."""
