"""Rows in, the data of interactive charts out: one file per figure of the report."""
