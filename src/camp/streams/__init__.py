"""Pictures on their way to a method: data sets, the scenarios that cut them into tasks, and safe decoding."""
