class Money:
    @classmethod
    def parse(cls, text: str) -> Money: ...

class _Mailbox:
    async def connect(self, user: str, password: str) -> None: ...

mailbox: _Mailbox
