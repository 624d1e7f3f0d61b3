"""Ready-made search spaces, one YAML file per question."""
