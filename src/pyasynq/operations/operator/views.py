"""The operator's methods about saved views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.operating.views import MAX_VIEWS, read_view, read_views, remove_view, write_view
from pyasynq.errors import InvalidOptionError, QueryError, QueueNotFoundError

from .search import SearchOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.operations.views import SavedView


class ViewOperator(SearchOperator):
    """The operator's methods about saved views: searches and other pages, stored under a name."""

    async def views(self, page: str = "") -> list[SavedView]:
        """Return the user's own views by name, then shared views; with `page`, only the views of this page.

        A view is left out if it names a queue that the user does not see.
        """
        from pyasynq.operations.views import order_views  # noqa: PLC0415 - most calls need none

        found = [view for view in await self._read_views() if self._may_see_view(view)]
        return order_views([view for view in found if page in {"", view.page}], self.user.name)

    async def save_view(
        self, name: str, page: str, query: str = "", columns: Sequence[str] = (), *, queue: str = ""
    ) -> SavedView:
        """Save a private view; the user's view of the same name is replaced, and no longer shared.

        Args:
            name: name of the view, at most 100 characters.
            page: page of the dashboard that the view belongs to.
            query: query in the query language, see docs/query.md; empty for none.
            columns: columns of the page's table, in their order.
            queue: queue of the page, if it is about one.

        Raises:
            QueryError: for a query that cannot be read.
            QueueNotFoundError: for a queue that the user does not see.
            InvalidOptionError: for an invalid name; above 100 views of the user, or 1,000 of all.
        """
        return await self._save(name, page, query, columns, queue, is_shared=False)

    async def share_view(
        self, name: str, page: str, query: str = "", columns: Sequence[str] = (), *, queue: str = ""
    ) -> SavedView:
        """Save a view for all users who see its queues, as `save_view`."""
        return await self._save(name, page, query, columns, queue, is_shared=True)

    async def delete_view(self, view: str) -> bool:
        """Delete one of the user's own views; return whether there was one with this id."""
        found = await self._read_view(view)
        return found is not None and found.owner == self.user.name and await self._remove(view)

    async def delete_shared_view(self, view: str) -> bool:
        """Delete a shared view of any user; return whether there was one with this id."""
        found = await self._read_view(view)
        return found is not None and found.is_shared and await self._remove(view)

    async def _save(
        self, name: str, page: str, query: str, columns: Sequence[str], queue: str, *, is_shared: bool
    ) -> SavedView:
        from pyasynq.operations.views import MAX_OWN_VIEWS, encode_view, make_view  # noqa: PLC0415 - most calls need none

        self._parse(query)
        view = make_view(
            name,
            owner=self.user.name,
            page=page,
            query=query,
            columns=columns,
            queue=queue,
            is_shared=is_shared,
            now=self._inspector.now().to_datetime(),
        )
        if queue and not self._access.sees(queue):
            raise QueueNotFoundError(queue)
        own = [one for one in await self._read_views() if one.owner == view.owner and one.view != view.view]
        if len(own) >= MAX_OWN_VIEWS:
            raise InvalidOptionError("name", name, f"a user has at most {MAX_OWN_VIEWS} views; delete one")
        if not await self._inspector.run(write_view(view.view, encode_view(view))):
            raise InvalidOptionError("name", name, f"there are {MAX_VIEWS:,} views, as many as can be")
        return view

    async def _read_views(self) -> list[SavedView]:
        from pyasynq.operations.views import decode_view  # noqa: PLC0415 - most calls need none

        found = await self._inspector.run(read_views())
        views = [decode_view(view, data) for view, data in found.items()]
        return [view for view in views if view is not None]

    async def _read_view(self, view: str) -> SavedView | None:
        from pyasynq.operations.views import decode_view  # noqa: PLC0415 - most calls need none

        data = await self._inspector.run(read_view(view))
        return None if data is None else decode_view(view, data)

    async def _remove(self, view: str) -> bool:
        return await self._inspector.run(remove_view(view))

    def _may_see_view(self, view: SavedView) -> bool:
        if view.owner == self.user.name:
            return True
        from pyasynq.operations.query import parse_query  # noqa: PLC0415 - most calls need none

        try:
            # A pattern of queues is seen by users whose own patterns match all of it.
            queues = {view.queue, *parse_query(view.query).queue_values} - {""}
        except QueryError:
            return False
        return view.is_shared and all(map(self._access.sees, queues))
