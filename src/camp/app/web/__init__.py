"""Local web servers and their protection."""
