"""Files and pages of MLflow beside the rows of the tracker.

attaching    when it is given what it has of a finished sweep beside its rows
attachments  makes and sends it: report, curves, card and models
register     an exported model, by a name
page         the page of a root's sweeps
page_server  the page's server, which ends with the process that wanted it
"""
