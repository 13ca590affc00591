password: str
