"""Trained models of a sweep: restored, played, compared, exported and registered.

trained   restores a trial's model and plays its episodes
networks  compares the networks of one trial on fresh episodes
export    writes a trial's model into a folder that runs without sweep
register  saves an exported model in MLflow and registers it
"""
