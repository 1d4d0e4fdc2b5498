"""The agent: one process per job that starts and watches the program and its servers.

It imports the standard library and pyft only, so that it starts in a few tens of milliseconds.
"""
