"""Other people's weights and formats. Each family is a table of names, one loader reads them all."""
