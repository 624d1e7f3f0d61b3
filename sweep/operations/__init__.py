"""Operations on a sweep other than driving it.

rehearsal       tries a sweep before anything is written: forecast, smoke test
schema          generates the JSON Schema of specs for editors
foreign         converts files of other tools to specs
doctor          checks this machine and the services that a sweep needs
upkeep          verifies, repairs and deletes sweeps on disk
models          restores, plays, compares and exports trained models
report          the HTML report of a sweep, and curves in the terminal
comparison      shows several sweeps side by side, in Python
mlflow          sends MLflow reports and models, and serves its page
agent           tools with which a language model tunes, and their server
control_client  sends requests to the driver of a running sweep
"""
