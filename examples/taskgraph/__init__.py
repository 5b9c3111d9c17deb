"""Task graphs: programs of the Quokka document, TPC-H queries, PageRank and a word count."""
