"""What a trial measured so far in, alarms that end it or warn out. Pure."""
