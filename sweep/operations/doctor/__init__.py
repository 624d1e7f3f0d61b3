"""Check everything that a sweep needs: this machine and its services.

examination  selects the checks and runs them
finding      the result of a check, and running checks with a time limit
machine      checks of this machine: packages, the root folder, the signing key, memory
services     checks of the services: database, object storage, cluster, MLflow server
"""
