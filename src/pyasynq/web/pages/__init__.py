"""One module for each page: its view model, and the function that fills it."""
