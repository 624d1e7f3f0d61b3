"""What a person sees of a sweep: looked up, worded, drawn, and shown while it runs."""
