"""What the reference's own samples say before anything is trained."""
