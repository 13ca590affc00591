"""Those who wait for tasks to end, and those who follow what happens to them."""
