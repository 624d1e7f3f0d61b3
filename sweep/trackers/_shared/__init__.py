"""Parts of the trackers.

mlflow_store    MLflow's store with the sweep's experiment and runs: a file, or a server
mlflow_content  the rows, tags and parameters in MLflow, as functions of the history
mlflow_view     the presentation of a sweep in MLflow's page: columns, order and charts
mlflow_check    differences between MLflow's copy and the ledger
optuna_storage  Optuna's tables, in a file or on the ledger's server
optuna_copy     the study in these tables, kept equal to the history
trial_files     one file of results for each seed of a trial, kept equal to the history
protobuf        protocol buffer messages, as in the files of TensorBoard and W&B
callbacks       user code that is called during a sweep
groups          the curve of a trial with several seeds
"""
