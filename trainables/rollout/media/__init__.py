"""Pictures, videos and tables of episodes.

files      pictures, videos and tables from callbacks, as files
recording  videos of episodes, pictures for a viewer
video      a video file
"""
