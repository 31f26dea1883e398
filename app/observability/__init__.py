"""Every metric and the one log line."""
