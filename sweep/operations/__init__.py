"""What is done with a sweep beside driving it.

validate        what a sweep would do, cost and stumble over, before anything is written
smoke_test      a trainable tried out in a child process: does it restore exactly, what does it
                cost
doctor          whether this machine and the services of a sweep can be used
verify          whether ledger, checkpoints and copies are whole
ledger_check    whether a ledger agrees with itself
repair          mends what can be worked out from what is left
trained         a trial's model, restored; its episodes played
cleaning        deletes a sweep, or what nobody needs of it
export          a trial's model in a folder that runs without this program
register        an exported model in MLflow, by a name
attaching       when MLflow is given what it has of a finished sweep beside its rows
attachments     makes and sends it: report, curves, card and models
control_client  asks the driver of a running sweep for something
mlflow_ui       the MLflow page of a root's sweeps
page_server     the page's server, which ends with the process that wanted it
"""
