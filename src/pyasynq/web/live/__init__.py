"""Live updates (server-sent events): one rendering for all viewers of a page, sent to each as a diff."""
