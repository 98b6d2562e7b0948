"""What other trainers would log for given samples: one file per framework, numpy only."""
