"""Parts of the trackers beside their plugins.

mlflow_store    the MLflow store, its experiment and runs: a file, or a server
mlflow_content  the rows, tags and parameters in MLflow, as functions of the history
mlflow_view     how MLflow's page shows a sweep: columns, order and charts
mlflow_check    where MLflow's copy differs from the ledger
optuna_storage  Optuna's tables, in a file or on the ledger's server
optuna_copy     the study in them, kept equal to the history
trial_files     one file of results for each seed of a trial, kept equal to the history
protobuf        messages of protocol buffers, as in the files of TensorBoard and W&B
callbacks       a person's own code, called as a sweep goes on
groups          the curve of a trial with several seeds
"""
