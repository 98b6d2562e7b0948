"""The built-in task: short questions about cooking times, answered in readable words."""
