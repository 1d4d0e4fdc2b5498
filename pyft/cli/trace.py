def trace():
    pass
