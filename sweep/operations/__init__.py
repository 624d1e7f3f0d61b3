"""Operations on a sweep other than driving it.

validate        forecasts a sweep before anything is written: plan, costs, likely mistakes
schema          generates the JSON Schema of specs for editors
conversion      converts files of other tools to specs
zoo             converts hyperparameters of rl-baselines3-zoo to settings of our trainers
smoke_test      trains a trainable briefly in a child process: exactness of restoring, costs
doctor          checks this machine and the services that a sweep needs
verify          checks ledger, checkpoints, files and copies for damage
ledger_check    checks that a ledger is readable and consistent
repair          repairs the damage that the remaining files allow
trained         restores a trial's model and plays its episodes
comparison      shows several sweeps side by side, in Python
networks        compares the networks of one trial on fresh episodes
cleaning        deletes a sweep, or the files of it that are no longer needed
export          writes a trial's model into a folder that runs without sweep
mlflow          sends MLflow reports and models, and serves its page
agent           tools with which a language model tunes, and their server
control_client  sends requests to the driver of a running sweep
"""
