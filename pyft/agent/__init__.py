"""The agent: one process per job that starts and watches the program and its servers.

At its start it imports the standard library and pyft only, so that it begins in a few tens of
milliseconds, also in the middle of a job.
"""
