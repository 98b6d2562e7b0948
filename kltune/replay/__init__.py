"""A trial's record and the same trial run again in; where they part, and a step taken apart, out."""
