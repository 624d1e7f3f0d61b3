"""Files and pages of MLflow, in addition to the rows of the tracker.

attaching    starts the process that sends a finished sweep's attachments
attachments  creates and sends the attachments: report, curves, card and models
page         serves the page of all sweeps in a root
page_server  the server process of the page, which ends with its parent
"""
