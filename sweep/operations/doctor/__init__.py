"""Examination of all that a sweep needs: this machine, and the services it is run with.

examination  which parts are looked at, all at once, each for a bounded time
finding      what one look has found
machine      this machine: packages, the folder of all sweeps, the key, memory
services     database, object storage, cluster, MLflow server
"""
