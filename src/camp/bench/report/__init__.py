"""What a run folder says: tables for a terminal or a paper, and one HTML page."""
