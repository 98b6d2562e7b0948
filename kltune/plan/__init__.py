"""How much data it takes to see a difference."""
