"""Live updates: one rendering for all viewers of a page, sent to each as changes."""
