def doctor():
    pass
