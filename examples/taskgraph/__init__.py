"""Task graphs: programs of the Quokka document, TPC-H queries, PageRank, a word count, a join of two depots."""
