"""The same study on several model sizes."""
