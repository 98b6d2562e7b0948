"""Configurations of other trainers in, their setting in kltune's words out."""
