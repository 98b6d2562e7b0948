"""What a notebook calls: sweeps started, studies opened, as DataFrames and plain objects."""
