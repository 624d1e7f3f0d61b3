"""The policy as one file that runs without this project.

export   writes the file and checks it
graph    preprocessing, filter, networks and action as a graph of ONNX
traced   a torch module of a person's own, as a part of such a graph
formats  the graph in other formats, and files of each format run alike
plain    runs the safetensors format; goes along with it
"""
