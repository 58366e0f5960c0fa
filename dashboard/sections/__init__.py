"""Parts of pages: each draws one thing that a page shows; pages import them, they import no page."""
