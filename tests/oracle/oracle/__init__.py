"""The second implementation, in parts; gwframe.py is its front."""
