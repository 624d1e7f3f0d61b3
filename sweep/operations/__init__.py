"""Operations on a sweep beside driving it.

validate        what a sweep would do, cost and stumble over, before anything is written
schema          JSON Schema of specs, for editors
conversion      files of other tools as specs
zoo             the hyperparameters of rl-baselines3-zoo as settings of our trainers
smoke_test      a trainable tried out in a child process: does it restore exactly, what does it
                cost
doctor          whether this machine and the services of a sweep can be used
verify          whether ledger, checkpoints and copies are whole
ledger_check    whether a ledger agrees with itself
repair          mends what can be worked out from what is left
trained         a trial's model, restored; its episodes played
networks        those of one setting, compared on fresh episodes
cleaning        deletes a sweep, or what nobody needs of it
export          a trial's model in a folder that runs without this program
mlflow          what MLflow is given and shows beside the rows of the tracker
control_client  asks the driver of a running sweep for something
"""
