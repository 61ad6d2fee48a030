"""Studies: grids of runs, and the table or figure made from them."""
