"""Whether a search finds settings as good as tuned ones, from ranges that do not know these."""
